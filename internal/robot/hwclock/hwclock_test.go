package hwclock

import (
	"errors"
	"testing"
	"testing/fstest"
	"time"
)

func TestRead_ReturnsTheClockOfTheSystem(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		dir  fstest.MapFS
		want int64
	}{
		"one clock":           {fstest.MapFS{"rtc0/since_epoch": file("1700000000\n"), "rtc0/hctosys": file("1\n")}, 1700000000},
		"one that is not set": {fstest.MapFS{"rtc0/since_epoch": file("7\n")}, 7},
		"the second of two":   {fstest.MapFS{"rtc0/since_epoch": file("7\n"), "rtc0/hctosys": file("0\n"), "rtc1/since_epoch": file("8\n"), "rtc1/hctosys": file("1\n")}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := read(c.dir); err != nil || got.Unix() != c.want {
				t.Errorf("%d, %v, want %d", got.Unix(), err, c.want)
			}
		})
	}
	if _, err := read(fstest.MapFS{}); !errors.Is(err, ErrNone) {
		t.Errorf("without a clock: %v", err)
	}
	for name, dir := range map[string]fstest.MapFS{"no time": {"rtc0/since_epoch": file("none")}, "no file": {"rtc0/hctosys": file("1\n")}} {
		if _, err := read(dir); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
}

func TestCompare(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for d, agrees := range map[time.Duration]bool{0: true, MaxDifference: true, -MaxDifference: true, MaxDifference + 1: false, -MaxDifference - 1: false, -30 * 365 * 24 * time.Hour: false} {
		if err := Compare(at, at.Add(d)); (err == nil) != agrees {
			t.Errorf("difference %s: %v", d, err)
		}
	}
}
