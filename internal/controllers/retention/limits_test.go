package retention

import (
	"strings"
	"testing"
	"time"
)

func TestOverrideBy(t *testing.T) {
	flags := Limits{Age: 24 * time.Hour, Count: 1000}
	for _, c := range []struct {
		name  string
		flags Limits
		in    map[string]string
		want  Limits
		wrong string // part of the error; if empty, none
	}{
		{name: "no annotations", flags: flags, want: flags},
		{name: "another age", flags: flags, in: map[string]string{AnnotationAge: "90m"}, want: Limits{90 * time.Minute, 1000}},
		{name: "another count", flags: flags, in: map[string]string{AnnotationCount: "5"}, want: Limits{24 * time.Hour, 5}},
		{name: "off", flags: flags, in: map[string]string{AnnotationAge: "0"}, want: Limits{0, 1000}},
		{name: "on only there", flags: Limits{Count: 1000}, in: map[string]string{AnnotationAge: "1h"}, want: Limits{time.Hour, 1000}},
		{name: "no duration", flags: flags, in: map[string]string{AnnotationAge: "2d"}, wrong: AnnotationAge + `="2d": must be a duration such as 48h`},
		{name: "a negative age", flags: flags, in: map[string]string{AnnotationAge: "-1h"}, wrong: "must be from 0"},
		{name: "an age beyond the maximum", flags: flags, in: map[string]string{AnnotationAge: "87601h"}, wrong: "must be from 0"},
		{name: "no number", flags: flags, in: map[string]string{AnnotationCount: "many"}, wrong: AnnotationCount + `="many": must be a number`},
		{name: "a count beyond the maximum", flags: flags, in: map[string]string{AnnotationCount: "1000001"}, wrong: "must be from 0 (no limit) to 1000000"},
		{name: "one mistake switches all off", flags: flags, in: map[string]string{AnnotationAge: "1h", AnnotationCount: "-1"}, wrong: AnnotationCount + "=-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.flags.overrideBy(c.in)
			if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestLimits_Validate(t *testing.T) {
	for _, l := range []Limits{{}, {maxAge, maxCount}, {DefaultAge, DefaultCount}} {
		if err := l.Validate(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	err := Limits{-time.Second, maxCount + 1}.Validate()
	for _, flag := range []string{"--finished-retention=-1s", "--finished-max-objects=1000001"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
