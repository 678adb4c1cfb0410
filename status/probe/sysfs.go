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

// tree implements cadvisor's view of /sys below a Reader's root. It passes paths without the root,
// because cadvisor finds node and CPU numbers in them with regular expressions that a root folder
// could match. The methods that it does not override (for block and network devices) are not used
// here.
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

// GetCoreID treats a CPU without a core ID, as on some ARM boards, as a separate core. cadvisor
// would omit it and write to standard error.
func (t *tree) GetCoreID(cpu string) (string, error) {
	id, err := t.SysFs.GetCoreID(t.reader.path(cpu))
	if os.IsNotExist(err) {
		return strings.TrimPrefix(path.Base(cpu), "cpu"), nil
	}
	return id, err
}

// GetCPUPhysicalPackageID treats a CPU without a package as one of the first package.
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
		// An error would make cadvisor write to standard error; such a node has no memory.
		return "MemTotal: 0 kB", nil
	}
	return text, err
}

// GetDistances prevents cadvisor from reading data that hostler does not use, and from writing to
// standard error if it is missing.
func (t *tree) GetDistances(string) (string, error) { return "0", nil }

// GetCaches prevents cadvisor from reading a dozen files for each CPU.
func (t *tree) GetCaches(int) ([]os.FileInfo, error) { return nil, nil }

func (t *tree) GetHugePagesInfo(folder string) ([]os.FileInfo, error) {
	infos, err := t.SysFs.GetHugePagesInfo(t.reader.path(folder))
	// cadvisor panics if a name has no dash.
	infos = slices.DeleteFunc(infos, func(i os.FileInfo) bool { return !strings.HasPrefix(i.Name(), "hugepages-") })
	return infos, err
}

func (t *tree) GetHugePagesNr(folder, name string) (string, error) {
	return t.SysFs.GetHugePagesNr(t.reader.path(folder)+"/", name)
}

// IsCPUOnline uses the list that was read once; cadvisor's version reads a file for each CPU.
// Without a list, no CPU can go offline.
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
