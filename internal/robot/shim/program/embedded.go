//go:build k8s4r_shim

package program

import _ "embed" // the compiler wants it for go:embed

//go:embed k8s4r-shim.gz
var embedded string
