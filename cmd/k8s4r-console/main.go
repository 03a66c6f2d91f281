// Command k8s4r-console serves web pages that display current and past objects.
package main

import (
	"os"

	"k8s4r.io/k8s4r/internal/console"
)

func main() { os.Exit(console.Main(os.Args[1:], os.Stdout, os.Stderr)) }
