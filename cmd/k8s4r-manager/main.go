// Command k8s4r-manager runs K8s4r's controllers, the scheduler and the admission webhook.
package main

import (
	"os"

	"k8s4r.io/k8s4r/internal/manager"
)

func main() { os.Exit(manager.Main(os.Args[1:], os.Stdout, os.Stderr)) }
