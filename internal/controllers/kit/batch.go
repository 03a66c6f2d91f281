package kit

import (
	"reflect"
	"time"
)

// MaxBatchBytes bounds the memory that the objects of one Batch take.
const MaxBatchBytes = 16 << 20

// Batch bounds what one plan creates, by number and by memory: a user chooses both how many objects
// are wanted and how large one is. The plan is continued when the objects of the batch exist.
type Batch struct{ objects, bytes int }

// NewBatch returns a batch of at most that many objects.
func NewBatch(objects int) Batch { return Batch{objects: objects, bytes: MaxBatchBytes} }

// IsFull reports whether the batch takes no more objects. A new batch takes at least one.
func (b *Batch) IsFull() bool { return b.objects <= 0 || b.bytes <= 0 }

// Add counts an object that the plan creates.
func (b *Batch) Add(object any) {
	b.objects--
	b.bytes -= MemorySize(object)
}

// MemorySize returns about how many bytes a deep copy of v takes, with its texts. A small document
// can be large in memory: an empty container has twelve bytes of JSON and hundreds as a struct.
func MemorySize(v any) int {
	return sizeOfReferenced(reflect.ValueOf(v))
}

// mapEntryBytes is the overhead of an entry of a map.
const mapEntryBytes = 16

// sizeOfReferenced returns the size of what a value refers to, without the value itself.
func sizeOfReferenced(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int(v.Elem().Type().Size()) + sizeOfReferenced(v.Elem())
	case reflect.String:
		return v.Len()
	case reflect.Slice:
		return sizeOfSlice(v)
	case reflect.Map:
		return sizeOfMap(v)
	case reflect.Struct:
		return sizeOfStruct(v)
	default: // numbers and bools
		return 0
	}
}

func sizeOfStruct(v reflect.Value) int {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return 0 // it refers to a time zone, which is not copied
	}
	n := 0
	for i := range v.NumField() {
		n += sizeOfReferenced(v.Field(i))
	}
	return n
}

func sizeOfSlice(v reflect.Value) int {
	n := v.Len() * int(v.Type().Elem().Size())
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return n
	}
	for i := range v.Len() {
		n += sizeOfReferenced(v.Index(i))
	}
	return n
}

func sizeOfMap(v reflect.Value) int {
	n := v.Len() * (int(v.Type().Key().Size()+v.Type().Elem().Size()) + mapEntryBytes)
	for entries := v.MapRange(); entries.Next(); {
		n += sizeOfReferenced(entries.Key()) + sizeOfReferenced(entries.Value())
	}
	return n
}
