package probe

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cadvisor/lib/utils/sysfs"
)

// tree is cadvisor's view of /sys, below a Reader's root. The paths that it
// hands out and takes back are the host's, for cadvisor finds node and CPU
// numbers in them with regular expressions that a root folder could match. What
// it does not override (block and network devices) is not requested here.
type tree struct {
	sysfs.SysFs
	reader *Reader
	online []int
}

func (t *tree) GetNodesPaths() ([]string, error) { return t.glob(nodesFolder + "/node*[0-9]") }

func (t *tree) GetCPUsPaths(folder string) ([]string, error) { return t.glob(folder + "/cpu*[0-9]") }

func (t *tree) glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(t.reader.path(pattern))
	for i := range found {
		found[i] = path.Join(path.Dir(pattern), filepath.Base(found[i]))
	}
	return found, err
}

// GetCoreID takes a CPU without a core ID, as on some ARM boards, for a core of
// its own: cadvisor would leave it out and write to standard error.
func (t *tree) GetCoreID(cpu string) (string, error) {
	id, err := t.SysFs.GetCoreID(t.reader.path(cpu))
	if os.IsNotExist(err) {
		return strings.TrimPrefix(path.Base(cpu), "cpu"), nil
	}
	return id, err
}

// GetCPUPhysicalPackageID takes a CPU of no package for one of the first.
func (t *tree) GetCPUPhysicalPackageID(cpu string) (string, error) {
	id, err := t.SysFs.GetCPUPhysicalPackageID(t.reader.path(cpu))
	if os.IsNotExist(err) {
		return "0", nil
	}
	return id, err
}

func (t *tree) GetBookID(cpu string) (string, error) {
	return t.SysFs.GetBookID(t.reader.path(cpu))
}

func (t *tree) GetDrawerID(cpu string) (string, error) {
	return t.SysFs.GetDrawerID(t.reader.path(cpu))
}

func (t *tree) GetMemInfo(node string) (string, error) {
	text, err := t.SysFs.GetMemInfo(t.reader.path(node))
	if os.IsNotExist(err) {
		// cadvisor would write to standard error; a node without a size has none.
		return "MemTotal: 0 kB", nil
	}
	return text, err
}

// GetDistances keeps cadvisor from reading what nobody here requests, and from
// writing to standard error where it is missing.
func (t *tree) GetDistances(string) (string, error) { return "0", nil }

// GetCaches keeps cadvisor from reading some dozen files for each CPU.
func (t *tree) GetCaches(int) ([]os.FileInfo, error) { return nil, nil }

func (t *tree) GetHugePagesInfo(folder string) ([]os.FileInfo, error) {
	infos, err := t.SysFs.GetHugePagesInfo(t.reader.path(folder))
	// cadvisor panics on a name without a dash.
	infos = slices.DeleteFunc(infos, func(i os.FileInfo) bool { return !strings.HasPrefix(i.Name(), "hugepages-") })
	return infos, err
}

func (t *tree) GetHugePagesNr(folder, name string) (string, error) {
	return t.SysFs.GetHugePagesNr(t.reader.path(folder)+"/", name)
}

// IsCPUOnline answers from the list read once; cadvisor's own reads the file for
// each CPU. Without a list no CPU can go offline.
func (t *tree) IsCPUOnline(cpu string) bool {
	if len(t.online) == 0 {
		return true
	}
	id, err := strconv.Atoi(strings.TrimPrefix(path.Base(cpu), "cpu"))
	if err != nil {
		return false
	}
	_, found := slices.BinarySearch(t.online, id)
	return found
}
