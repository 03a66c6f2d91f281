package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func manyInterfaces(n, size int) (all []NetworkInterface) {
	for i := range n {
		all = append(all, NetworkInterface{Name: fmt.Sprint("veth", i), Addresses: []string{strings.Repeat("a", size)}})
	}
	return all
}

func TestDeviceInfo_WithinLimits(t *testing.T) {
	for name, c := range map[string]struct {
		in        DeviceInfo
		truncated []string
		disks     int
		nets      int
	}{
		"an ordinary device":               {in: DeviceInfo{Hostname: "h", Disks: make([]Disk, 4), NetworkInterfaces: manyInterfaces(16, 40)}, disks: 4, nets: 16},
		"more disks than the kind has":     {in: DeviceInfo{Disks: make([]Disk, MaxDeviceItems+1)}, disks: MaxDeviceItems, truncated: []string{"disks"}},
		"as many disks as the kind has":    {in: DeviceInfo{Disks: make([]Disk, MaxDeviceItems)}, disks: MaxDeviceItems},
		"the longest list is cut":          {in: DeviceInfo{Disks: make([]Disk, 10), NetworkInterfaces: manyInterfaces(64, 256)}, disks: 10, nets: 55, truncated: []string{"networkInterfaces"}},
		"the agent has cut it before":      {in: DeviceInfo{Truncated: []string{"disks", "an invention", "disks"}}, truncated: []string{"disks"}},
		"texts outside of lists are short": {in: DeviceInfo{Hostname: strings.Repeat("<", 1<<18)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.in.WithinLimits()
			if !slices.Equal(got.Truncated, c.truncated) || len(got.Disks) != c.disks || len(got.NetworkInterfaces) != c.nets {
				t.Errorf("%d disks, %d interfaces, truncated %q", len(got.Disks), len(got.NetworkInterfaces), got.Truncated)
			}
		})
	}
}

// Whatever a robot sends, the result fits, is stable, and says what was cut; the first items stay.
func TestDeviceInfo_WithinLimitsFitsAlways(t *testing.T) {
	text := rapid.SampledFrom([]string{"", "eth0", strings.Repeat("x", 255), strings.Repeat("\x01", 300), strings.Repeat("<ü", 200)})
	texts := rapid.SliceOfN(text, 0, 80)
	rapid.Check(t, func(t *rapid.T) {
		s := func(name string) string { return text.Draw(t, name) }
		d := DeviceInfo{
			Hostname: s("host"), TaskUser: s("user"), Drivers: texts.Draw(t, "drivers"), Truncated: texts.Draw(t, "truncated"),
			Platform: &Platform{s("a"), s("b"), s("c"), s("d"), s("e"), s("f"), s("g")}, CPU: &CPU{ModelName: s("model"), Vendor: s("vendor")},
			Isolation: &Isolations{Available: texts.Draw(t, "available")},
		}
		for range rapid.IntRange(0, 100).Draw(t, "disks") {
			d.Disks = append(d.Disks, Disk{Device: s("device"), MountPoint: s("mount")})
		}
		for range rapid.IntRange(0, 20).Draw(t, "nets") {
			d.NetworkInterfaces = append(d.NetworkInterfaces, NetworkInterface{Name: s("name"), Addresses: texts.Draw(t, "addresses")})
		}
		got := d.WithinLimits()
		if n := jsonSize(got); n > MaxDevice {
			t.Fatalf("%d bytes", n)
		}
		if cut := len(got.Disks) < len(d.Disks); cut != slices.Contains(got.Truncated, "disks") && !slices.Contains(d.Truncated, "disks") {
			t.Errorf("%d of %d disks are left, truncated %q", len(got.Disks), len(d.Disks), got.Truncated)
		}
		if again := got.WithinLimits(); jsonSize(again) != jsonSize(got) {
			t.Errorf("%d bytes, and then %d", jsonSize(got), jsonSize(again))
		}
		for i := range got.Disks {
			if got.Disks[i].Device != TruncateText(d.Disks[i].Device, maxDeviceText) && got.Disks[i].Device != TruncateText(d.Disks[i].Device, shortDeviceText) {
				t.Errorf("disk %d is %q", i, got.Disks[i].Device)
			}
		}
	})
}
