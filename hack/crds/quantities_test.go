package main

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestParsedQuantityPattern_MatchesWhatCanBeParsed(t *testing.T) {
	kubernetes, ours := regexp.MustCompile(quantityPattern), regexp.MustCompile(parsedQuantityPattern)
	for _, text := range []string{"1", "0.5", ".5", "1.", "-1", "+1", "100m", "1Gi", "1E", "1e3", "1e-3", "1E+09", "12345678901234567890"} {
		if _, err := resource.ParseQuantity(text); err != nil || !kubernetes.MatchString(text) || !ours.MatchString(text) {
			t.Errorf("%s is refused, %v", text, err)
		}
	}
	for _, text := range []string{"1e1.5", "1e.5", "1e99999999999999999999"} {
		if _, err := resource.ParseQuantity(text); err == nil || !kubernetes.MatchString(text) {
			t.Errorf("%s is no example: %v", text, err)
		}
		if ours.MatchString(text) {
			t.Errorf("%s is accepted", text)
		}
	}
	for _, text := range []string{"", "1 Gi", "1gi", "one", "1e100", strings.Repeat("9", 101)} {
		if ours.MatchString(text) {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestNarrowQuantities(t *testing.T) {
	inner := object{"pattern": quantityPattern}
	other := object{"pattern": "^a$"}
	narrowQuantities(object{"properties": object{"list": object{"items": []any{inner, other}}}})
	if inner["pattern"] != parsedQuantityPattern || other["pattern"] != "^a$" {
		t.Errorf("patterns %v and %v", inner["pattern"], other["pattern"])
	}
}

func TestBoundIntOrStrings(t *testing.T) {
	port := object{"x-kubernetes-int-or-string": true}
	quantity := object{"x-kubernetes-int-or-string": true, "pattern": quantityPattern}
	other := object{"type": "integer"}
	boundIntOrStrings(object{"properties": object{"list": object{"items": []any{port, quantity, other}}}})
	if port["minimum"] != math.MinInt32 || port["maximum"] != math.MaxInt32 {
		t.Errorf("a port is %v", port)
	}
	if quantity["maximum"] != nil || other["maximum"] != nil {
		t.Errorf("changed %v and %v", quantity, other)
	}
}
