package shim

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// codec encodes a Spec into memory, or decodes it from there: each method does both. A process that
// decodes one message of many types spends more time in encoding/json than on all else that a shim does
// before the task starts.
type codec struct {
	isDecoding bool
	b          []byte // what was encoded, or is still to be decoded
	err        error  // the first
}

// codecVersion is the first byte. It changes with Spec: the programs of k8s4r up and of its node's shims
// are two files.
const codecVersion = 5

var errOtherVersion = errors.New("the attempt was sent by another version of the program; install all programs in the same version")

var errTruncated = errors.New("the attempt that the shim received is not complete")

// encodeSpec returns the attempt as decodeSpec takes it.
func encodeSpec(s Spec) ([]byte, error) {
	c := &codec{b: []byte{codecVersion}}
	c.spec(&s)
	return c.b, c.err
}

func decodeSpec(b []byte) (s Spec, err error) {
	if len(b) == 0 || b[0] != codecVersion {
		return s, errOtherVersion
	}
	c := &codec{isDecoding: true, b: b[1:]}
	if c.spec(&s); c.err == nil && len(c.b) > 0 {
		return s, errOtherVersion
	}
	return s, c.err
}

func (c *codec) spec(s *Spec) {
	for _, text := range []*string{&s.Dir, &s.LogDir, &s.LogLine, &s.Driver, &s.WorkDir, &s.OutputsFile, &s.Engine, &s.LastSeenDir} {
		c.text(text)
	}
	for _, d := range []*time.Duration{&s.Timeout, &s.KillTimeout, &s.ShutdownWait, &s.SelfStopAfter} {
		number(c, d)
	}
	number(c, &s.LogBytes)
	number(c, &s.LogGap)
	number(c, &s.TimerSlack)
	c.flag(&s.Namespaces)
	c.texts(&s.Outputs)
	c.textMap(&s.Env)
	optional(c, &s.Range, func(r *Range) {
		list(c, &r.Indexes, func(index *int32) { number(c, index) })
		c.texts(&r.Items)
	})
	optional(c, &s.Config.Exec, func(e *wire.ExecConfig) { c.text(&e.Command); c.texts(&e.Args) })
	inJSON(c, &s.Config.Java)
	inJSON(c, &s.Config.Docker)
	isContained := s.Contained != (driver.Contained{})
	if c.flag(&isContained); isContained {
		inJSON(c, &s.Contained)
	}
	inJSON(c, &s.SetUp)
	c.confinement(&s.Confinement)
}

func (c *codec) confinement(f *isolation.Confinement) {
	optional(c, &f.Cgroup, func(g *isolation.Cgroup) { c.text(&g.V2); c.textMap(&g.V1) })
	optional(c, &f.Mounts, func(m *isolation.Mounts) {
		c.flag(&m.ReadOnly)
		c.text(&m.Tmp)
		c.texts(&m.Hidden)
		c.texts(&m.Writable)
		inJSON(c, &m.Binds)
	})
	optional(c, &f.User, func(u *isolation.User) {
		c.text(&u.Name)
		c.text(&u.Home)
		number(c, &u.UID)
		number(c, &u.GID)
		list(c, &u.Groups, func(gid *uint32) { number(c, gid) })
	})
	number(c, &f.Enter)
	c.text(&f.Hostname)
	for _, on := range []*bool{&f.NoNewPrivileges, &f.Seccomp, &f.Rlimits} {
		c.flag(on)
	}
}

// number is for values that fit into 64 bits.
func number[T ~int | ~int32 | ~int64 | ~uint32](c *codec, n *T) {
	if !c.isDecoding {
		c.b = binary.AppendVarint(c.b, int64(*n))
		return
	}
	value, size := binary.Varint(c.b)
	if size <= 0 {
		c.err, c.b = errTruncated, nil
		return
	}
	*n, c.b = T(value), c.b[size:]
}

func (c *codec) flag(on *bool) {
	var n int
	if *on {
		n = 1
	}
	number(c, &n)
	*on = n == 1
}

func (c *codec) text(s *string) {
	n := len(*s)
	number(c, &n)
	switch {
	case !c.isDecoding:
		c.b = append(c.b, *s...)
	case n > len(c.b) || n < 0:
		c.err, c.b = errTruncated, nil
	default:
		*s, c.b = string(c.b[:n]), c.b[n:]
	}
}

func (c *codec) texts(all *[]string) { list(c, all, c.text) }

// list encodes nil like an empty list.
func list[T any](c *codec, all *[]T, code func(*T)) {
	n := len(*all)
	number(c, &n)
	for i := 0; i < n && c.err == nil; i++ {
		if c.isDecoding {
			*all = append(*all, *new(T))
		}
		code(&(*all)[i])
	}
}

func (c *codec) textMap(all *map[string]string) {
	names := slices.Sorted(maps.Keys(*all))
	c.texts(&names)
	if c.isDecoding && len(names) > 0 {
		*all = make(map[string]string, len(names))
	}
	for _, name := range names {
		value := (*all)[name]
		if c.text(&value); c.isDecoding {
			(*all)[name] = value
		}
	}
}

// optional is for what may be nil.
func optional[T any](c *codec, p **T, code func(*T)) {
	isSet := *p != nil
	if c.flag(&isSet); !isSet {
		return
	}
	if c.isDecoding {
		*p = new(T)
	}
	code(*p)
}

// inJSON is for what few attempts have. The zero value takes no JSON.
func inJSON[T any](c *codec, value *T) {
	var text string
	if !c.isDecoding {
		b, err := json.Marshal(value)
		c.err = errors.Join(c.err, err)
		if text = string(b); text == "null" {
			text = ""
		}
	}
	if c.text(&text); c.isDecoding && text != "" && c.err == nil {
		c.err = json.Unmarshal([]byte(text), value)
	}
}
