package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// What bbolt's file format (version 2) consists of. Numbers are in the host's
// byte order, since bbolt maps its structures onto the file.
// Source: go.etcd.io/bbolt/internal/common, {meta,page,bucket}.go.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderBytes = 16 // id u64, flags u16, count u16, overflow u32
	elementBytes    = 16 // leaf: flags, pos, ksize, vsize u32; branch: pos, ksize u32, page u64
	bucketBytes     = 16 // root page u64, sequence u64
	metaBytes       = 64 // magic, version, pageSize, flags u32; root, seq, freelist, pages, txid, sum u64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	firstDataPage = 2
	noFreelist    = ^uint64(0)
)

// verify reads a bbolt file the way bbolt will, without mapping it, and returns
// an error (errDamaged, or the disk's own) where bbolt would panic, fault, loop
// or overwrite live pages. bbolt checks nothing but its two meta pages: a cut
// file faults, and a page that refers to itself is followed until the memory is
// used up, which nothing can recover from.
//
// It does not vouch for the values: bbolt keeps no checksums of them.
func verify(r io.ReaderAt, sizeBytes int64) error {
	m, err := readMeta(r, sizeBytes)
	if err != nil {
		return err
	}
	v := &verifier{r: r, meta: m, used: make([]bool, m.pages)}
	v.used[0], v.used[1] = true, true
	if err := v.tree(m.root, nil, nil); err != nil {
		return err
	}
	return v.freelist()
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// meta is a meta page: the root of everything, as of one transaction.
type meta struct {
	pageBytes int64
	root      uint64
	freelist  uint64
	pages     uint64 // pages from here on have never been used
	txid      uint64
}

// readMeta returns the meta page that bbolt will choose: of those with a valid
// checksum the one with the higher transaction.
func readMeta(r io.ReaderAt, sizeBytes int64) (meta, error) {
	var found []meta
	if m, ok := metaAt(r, 0); ok {
		found = append(found, m)
		if m, ok := metaAt(r, m.pageBytes); ok {
			found = append(found, m)
		}
	} else {
		for offset := int64(1024); offset <= 1024<<14 && offset < sizeBytes; offset <<= 1 {
			if m, ok := metaAt(r, offset); ok {
				found = append(found, m)
				break
			}
		}
	}
	if len(found) == 0 {
		return meta{}, damaged("no valid meta page in %d bytes", sizeBytes)
	}
	m := found[0]
	if len(found) == 2 {
		if found[1].pageBytes != m.pageBytes {
			return meta{}, damaged("meta pages disagree about the page size")
		}
		if found[1].txid > m.txid {
			m = found[1]
		}
	}
	switch {
	case m.pageBytes < 1024 || m.pageBytes > 1<<24 || m.pageBytes&(m.pageBytes-1) != 0:
		return meta{}, damaged("page size %d", m.pageBytes)
	case m.pages < 4 || m.pages > uint64(sizeBytes/m.pageBytes):
		return meta{}, damaged("%d pages of %d bytes in a file of %d bytes", m.pages, m.pageBytes, sizeBytes)
	case m.freelist == noFreelist:
		return meta{}, damaged("no list of free pages")
	}
	return m, nil
}

func metaAt(r io.ReaderAt, offset int64) (meta, bool) {
	b := make([]byte, metaBytes)
	if _, err := r.ReadAt(b, offset+pageHeaderBytes); err != nil {
		return meta{}, false
	}
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	sum := fnv.New64a()
	sum.Write(b[:56])
	if u32(b) != boltMagic || u32(b[4:]) != boltVersion || u64(b[56:]) != sum.Sum64() {
		return meta{}, false
	}
	m := meta{pageBytes: int64(u32(b[8:])), root: u64(b[16:]), freelist: u64(b[32:]), pages: u64(b[40:]), txid: u64(b[48:])}
	if offset != 0 && offset != m.pageBytes {
		return meta{}, false
	}
	return m, true
}

type verifier struct {
	r    io.ReaderAt
	meta meta
	used []bool // by page: referred to already
}

// page is one page with its overflow.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte
}

func parsePage(data []byte) page {
	u16 := binary.NativeEndian.Uint16
	return page{id: binary.NativeEndian.Uint64(data), flags: u16(data[8:]), count: int(u16(data[10:])), data: data}
}

// read returns page id and marks it used. A page that is used twice is damage,
// which also bounds the walk.
func (v *verifier) read(id uint64) (page, error) {
	if id < firstDataPage || id >= v.meta.pages {
		return page{}, damaged("page %d of %d", id, v.meta.pages)
	}
	header := make([]byte, pageHeaderBytes)
	if err := v.readAt(header, id); err != nil {
		return page{}, err
	}
	last := id + uint64(binary.NativeEndian.Uint32(header[12:]))
	if last >= v.meta.pages {
		return page{}, damaged("page %d runs to %d of %d", id, last, v.meta.pages)
	}
	for i := id; i <= last; i++ {
		if v.used[i] {
			return page{}, damaged("page %d is referred to twice", i)
		}
		v.used[i] = true
	}
	data := make([]byte, int64(last-id+1)*v.meta.pageBytes)
	if err := v.readAt(data, id); err != nil {
		return page{}, err
	}
	p := parsePage(data)
	if p.id != id {
		return page{}, damaged("page %d calls itself %d", id, p.id)
	}
	return p, nil
}

func (v *verifier) readAt(b []byte, id uint64) error {
	_, err := v.r.ReadAt(b, int64(id)*v.meta.pageBytes)
	if errors.Is(err, io.EOF) {
		return damaged("page %d is cut off", id)
	}
	return err
}

// tree walks the pages of one bucket and of the buckets in it. Keys are at least
// low and less than high, where these are not nil.
func (v *verifier) tree(id uint64, low, high []byte) error {
	p, err := v.read(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case flagBranch:
		return v.branch(p, low, high)
	case flagLeaf:
		return v.leaf(p, low, high, true)
	}
	return damaged("page %d is of type %#x", id, p.flags)
}

func (v *verifier) branch(p page, low, high []byte) error {
	if p.count == 0 {
		return damaged("branch page %d is empty", p.id)
	}
	keys, children := make([][]byte, p.count), make([]uint64, p.count)
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return err
		}
		u32 := binary.NativeEndian.Uint32
		keys[i], err = p.slice(i, u32(e), 0, u32(e[4:]))
		if err != nil {
			return err
		}
		children[i] = binary.NativeEndian.Uint64(e[8:])
	}
	if err := ordered(p, keys, low, high); err != nil {
		return err
	}
	for i, child := range children {
		end := high
		if i+1 < len(keys) {
			end = keys[i+1]
		}
		if err := v.tree(child, keys[i], end); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) leaf(p page, low, high []byte, buckets bool) error {
	keys := make([][]byte, p.count)
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return err
		}
		u32 := binary.NativeEndian.Uint32
		flags, pos, ksize, vsize := u32(e), u32(e[4:]), u32(e[8:]), u32(e[12:])
		keys[i], err = p.slice(i, pos, 0, ksize)
		if err != nil {
			return err
		}
		value, err := p.slice(i, pos, ksize, vsize)
		if err != nil {
			return err
		}
		switch {
		case flags == 0:
		case flags == 1 && buckets:
			if err := v.bucket(value); err != nil {
				return err
			}
		default:
			return damaged("page %d: entry %d is of type %#x", p.id, i, flags)
		}
	}
	return ordered(p, keys, low, high)
}

// bucket walks a bucket, which is a tree of its own or, while it is small, a
// page inside the value.
func (v *verifier) bucket(value []byte) error {
	if len(value) < bucketBytes {
		return damaged("bucket of %d bytes", len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return v.tree(root, nil, nil)
	}
	if len(value) < bucketBytes+pageHeaderBytes {
		return damaged("inline bucket of %d bytes", len(value))
	}
	p := parsePage(value[bucketBytes:])
	if p.flags != flagLeaf || p.id != 0 {
		return damaged("inline bucket of type %#x", p.flags)
	}
	return v.leaf(p, nil, nil, false)
}

// freelist checks the free pages, any of which bbolt will overwrite.
func (v *verifier) freelist() error {
	p, err := v.read(v.meta.freelist)
	if err != nil {
		return err
	}
	if p.flags != flagFreelist {
		return damaged("list of free pages is of type %#x", p.flags)
	}
	ids, count := p.data[pageHeaderBytes:], uint64(p.count)
	if count == 0xFFFF { // too many for the field: the first number says how many
		count = binary.NativeEndian.Uint64(ids)
		ids = ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return damaged("%d free pages listed in %d bytes", count, len(ids))
	}
	for i := range count {
		id := binary.NativeEndian.Uint64(ids[8*i:])
		if id < firstDataPage || id >= v.meta.pages || v.used[id] {
			return damaged("page %d is listed as free", id)
		}
		v.used[id] = true
	}
	return nil
}

// element is the fixed part of entry i.
func (p page) element(i int) ([]byte, error) {
	start := pageHeaderBytes + i*elementBytes
	if start+elementBytes > len(p.data) {
		return nil, damaged("page %d: entry %d is outside", p.id, i)
	}
	return p.data[start : start+elementBytes], nil
}

// slice is what entry i refers to: size bytes, skip bytes after pos, which
// counts from the entry.
func (p page) slice(i int, pos, skip, size uint32) ([]byte, error) {
	start := uint64(pageHeaderBytes+i*elementBytes) + uint64(pos) + uint64(skip)
	if end := start + uint64(size); end <= uint64(len(p.data)) {
		return p.data[start:end], nil
	}
	return nil, damaged("page %d: data of entry %d is outside", p.id, i)
}

// ordered tells whether keys ascend within [low, high).
func ordered(p page, keys [][]byte, low, high []byte) error {
	for i, key := range keys {
		switch {
		case len(key) == 0,
			i == 0 && low != nil && bytes.Compare(key, low) < 0,
			i > 0 && bytes.Compare(key, keys[i-1]) <= 0,
			high != nil && bytes.Compare(key, high) >= 0:
			return damaged("page %d: key %d is out of order", p.id, i)
		}
	}
	return nil
}
