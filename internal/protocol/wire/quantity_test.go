package wire

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestRoundUpTo(t *testing.T) {
	tests := []struct {
		q     Quantity
		parts int64
		want  int64
	}{
		{"", 1, 0}, {"0", 1, 0}, {"2", 1000, 2000}, {"500m", 1000, 500}, {"1.5", 1000, 1500}, {"100u", 1000, 1},
		{"128Mi", 1, 128 << 20}, {"1Gi", 1, 1 << 30}, {"1k", 1, 1000}, {"2E", 1, 2e18}, {"1e3", 1, 1000}, {"1E3", 1, 1000}, {"20Ei", 1, math.MaxInt64},
	}
	for _, test := range tests {
		if got, err := test.q.RoundUpTo(test.parts); err != nil || got != test.want {
			t.Errorf("%q in %d parts = %d, %v; want %d", test.q, test.parts, got, err, test.want)
		}
	}
	for _, bad := range []Quantity{"-1", "abc", "1Zi", "m", "1 Mi", "0x10", "Inf", "NaN", "1_000"} {
		if got, err := bad.RoundUpTo(1); err == nil {
			t.Errorf("%q = %d, want an error", bad, got)
		}
	}
}

func TestRoundUpTo_AgreesWithAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-9]{1,6}(\.[0-9]{1,3})?(m|k|M|G|Ki|Mi|Gi|e[0-3])?`).Draw(t, "quantity")
		want, err := resource.ParseQuantity(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Quantity(s).RoundUpTo(1000)
		if err != nil || got != want.MilliValue() {
			t.Fatalf("%q = %d, %v; want %d", s, got, err, want.MilliValue())
		}
	})
}
