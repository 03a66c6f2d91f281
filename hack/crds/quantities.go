package main

import "math"

// quantityPattern is a pattern that Kubernetes gives all quantities. It matches texts that no
// program can parse, such as 1e1.5 and 1e99999999999999999999.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// parsedQuantityPattern matches only what can be parsed. An object with another text would prevent
// a controller from reading all the others.
const parsedQuantityPattern = `^(\+|-)?(([0-9]{1,100}(\.[0-9]{0,100})?)|(\.[0-9]{1,100}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`

// narrowQuantities replaces the pattern of all quantities of a CRD.
func narrowQuantities(crd object) {
	each(crd, func(o object) {
		if o["pattern"] == quantityPattern {
			o["pattern"] = parsedQuantityPattern
		}
	})
}

// boundIntOrStrings gives the numbers of all fields for a number or a text, such as ports, the range
// that a program can read. The API server does not bound them, unlike those of type integer, and an
// object with a larger one would prevent a controller from reading all the others.
func boundIntOrStrings(crd object) {
	each(crd, func(o object) {
		if o["x-kubernetes-int-or-string"] == true && o["pattern"] == nil {
			o["minimum"], o["maximum"] = math.MinInt32, math.MaxInt32
		}
	})
}
