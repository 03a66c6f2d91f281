package shim

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fill sets every field below v to a random value, or with zero now and then to none, so that a field
// that is added later and not encoded fails the tests. Numbers are not negative.
func fill(t *rapid.T, v reflect.Value, zero bool) {
	if zero && rapid.Bool().Draw(t, "zero") {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), zero)
	case reflect.Struct:
		fillStruct(t, v, zero)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), false)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(rapid.String().Draw(t, "key")), reflect.ValueOf(rapid.String().Draw(t, "value")))
	case reflect.String:
		v.SetString(rapid.StringN(1, 5, -1).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(rapid.Uint32Min(1).Draw(t, "number")))
	default:
		v.SetInt(int64(rapid.Int32Min(1).Draw(t, "number")))
	}
}

func fillStruct(t *rapid.T, v reflect.Value, zero bool) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC()))
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("json") != "-" {
			fill(t, v.Field(i), zero)
		}
	}
}

func TestSpec_RoundTrips(t *testing.T) {
	for _, zero := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			var s Spec
			fill(t, reflect.ValueOf(&s).Elem(), zero)
			s.Program = "" // is not sent
			b, err := encodeSpec(s)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decodeSpec(b); err != nil || !reflect.DeepEqual(got, s) {
				t.Fatalf("decoded as %+v, %v; want %+v", got, err, s)
			}
			if got, err := decodeSpec(append(slices.Clone(b), 0)); !errors.Is(err, errOtherVersion) {
				t.Fatalf("with one byte more: decoded as %+v, %v, want %v", got, err, errOtherVersion)
			}
			part := b[:rapid.IntRange(0, len(b)-1).Draw(t, "length")]
			if got, err := decodeSpec(part); err == nil {
				t.Fatalf("%d of %d bytes are decoded as %+v, want an error", len(part), len(b), got)
			}
		})
	}
}

// describeType returns the names and kinds of everything below a type, in order.
func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return t.Kind().String() + " " + describeType(t.Elem())
	case reflect.Struct:
		text := "{"
		for i := range t.NumField() {
			text += t.Field(i).Name + " " + describeType(t.Field(i).Type) + ";"
		}
		return text + "}"
	}
	return t.Kind().String()
}

// A spec that is read as one of another version could start another command.
func TestCodecVersion_ChangesWithSpec(t *testing.T) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(describeType(reflect.TypeFor[Spec]())))
	if want := map[uint32]byte{0xb0221c2: 1, 0x7ab8640b: 2, 0x487f6fab: 3, 0xae59033e: 4, 0x34f590f0: 5}; want[hash.Sum32()] != codecVersion {
		t.Errorf("Spec has changed: count codecVersion up, and put it here for %#x", hash.Sum32())
	}
}

func TestDecodeSpec_RejectsAnotherVersion(t *testing.T) {
	for _, text := range []string{"", `{"dir":"/d"}`} {
		if s, err := decodeSpec([]byte(text)); !errors.Is(err, errOtherVersion) {
			t.Errorf("%q is decoded as %+v, %v", text, s, err)
		}
	}
}

func TestAppendLine_WritesJSON(t *testing.T) {
	for _, zero := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			var s State
			fill(t, reflect.ValueOf(&s).Elem(), zero)
			want, err := json.Marshal(stateLine{StateFormat, s})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(appendLine(nil, s)); got != string(want)+"\n" {
				t.Fatalf("the line is\n%s, want\n%s", got, want)
			}
		})
	}
}
