// Command openapi writes docs/reference/console-openapi.json, the document of the console's API,
// from the code that serves it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s4r.io/k8s4r/internal/console"
)

func main() {
	if err := write("docs/reference/console-openapi.json"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(file string) error {
	document, err := json.MarshalIndent(console.BuildDocument(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(document, '\n'), 0o644)
}
