//go:build !k8s4r_shim

package program

// embedded is empty: this build does not carry the program, which otherwise is compressed with gzip.
const embedded = ""
