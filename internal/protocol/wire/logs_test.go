package wire

import (
	"bytes"
	"crypto/rand"
	"testing"
)

func TestLogs_RoundTrip(t *testing.T) {
	noise := make([]byte, MaxLogs)
	rand.Read(noise)
	var p LogPacker
	for _, row := range []struct {
		name string
		data []byte
		gzip bool
	}{
		{"nothing", nil, false},
		{"a line", []byte("hello\n"), false},
		{"many lines", bytes.Repeat([]byte("hello\n"), MaxLogs/6), true},
		{"what cannot be compressed, as much as fits", noise, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			sent := Logs{Attempt: 1, Offset: 7, Lost: 2, Last: true}
			p.Pack(&sent, row.data)
			payload, err := Encode(sent)
			if err != nil || sent.Gzip != row.gzip {
				t.Fatalf("gzip %v, %v", sent.Gzip, err)
			}
			got, err := Decode[Logs](payload)
			if err != nil {
				t.Fatal(err)
			}
			data, err := got.Unpack()
			if err != nil || !bytes.Equal(data, row.data) || got.Offset != 7 || got.Lost != 2 || !got.Last {
				t.Errorf("got %d bytes of %d at %d, %v", len(data), len(row.data), got.Offset, err)
			}
		})
	}
}

func TestLogs_RejectsInvalidValues(t *testing.T) {
	var p LogPacker
	bomb := Logs{Attempt: 1}
	p.Pack(&bomb, make([]byte, MaxLogs+1))
	cut := Logs{Attempt: 1}
	p.Pack(&cut, make([]byte, 1000))
	cut.Data = cut.Data[:len(cut.Data)-4]
	for name, l := range map[string]Logs{
		"no attempt":                 {},
		"an offset before all":       {Attempt: 1, Offset: -1},
		"more lost than there was":   {Attempt: 1, Offset: 1, Lost: 2},
		"a gain":                     {Attempt: 1, Lost: -1},
		"more than fits":             {Attempt: 1, Data: make([]byte, MaxLogs+1)},
		"what grows beyond the size": bomb,
		"what is cut off":            cut,
		"no gzip":                    {Attempt: 1, Data: []byte("hello"), Gzip: true},
	} {
		if _, err := l.Unpack(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func FuzzLogs(f *testing.F) {
	f.Add([]byte(`{"attempt":1,"offset":5,"data":"aGVsbG8K"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		l, err := Decode[Logs](payload)
		if err != nil {
			return
		}
		if data, err := l.Unpack(); err == nil && len(data) > MaxLogs {
			t.Errorf("%d bytes", len(data))
		}
	})
}
