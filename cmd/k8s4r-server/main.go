// Command k8s4r-server is the gateway between robots and the API server.
package main

import (
	"os"

	"k8s4r.io/k8s4r/internal/server"
	_ "k8s4r.io/k8s4r/internal/server/buckets"
)

func main() { os.Exit(server.Main(os.Args[1:], os.Stdout, os.Stderr)) }
