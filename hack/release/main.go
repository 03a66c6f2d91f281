// Command release packs the built programs and signs them, without a network.
//
//	go run ./hack/release -key FILE -version VERSION -bin bin [-out dist/release] [FILE...]
//	go run ./hack/release -verify -key PUBLIC [-out dist/release]
//
// It writes into the directory:
//
//	k8s4r-VERSION-OS-ARCH.tar.gz  the programs; equal programs give equal archives
//	other files that are named    such as bills of materials
//	provenance.intoto.json        what was built from which commit, with which Go and modules: an in-toto
//	                              statement with SLSA provenance, signed as a DSSE envelope
//	SHA256SUMS, SHA256SUMS.sig    checksums of all these, and their Ed25519 signature
//	release.pub                   the public key, for convenience; users must get it in another way
//
// docs/how-to/install.md describes how users verify a release.
package main

import (
	"crypto/ed25519"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() { os.Exit(runRelease(os.Args[1:], os.Stdout, os.Stderr, time.Now)) }

type options struct {
	key, version, bin, out string
	verify                 bool
	files                  []string
}

// runRelease returns the exit code: 1 if the release cannot be made or verified, 2 for wrong usage.
func runRelease(args []string, stdout, stderr io.Writer, now func() time.Time) int {
	var o options
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.key, "key", "", "PEM file with the Ed25519 key; with -verify, the public key")
	f.StringVar(&o.version, "version", "", "version of the release")
	f.StringVar(&o.bin, "bin", "bin", "directory with the built programs")
	f.StringVar(&o.out, "out", "dist/release", "directory of the release; it is replaced")
	f.BoolVar(&o.verify, "verify", false, "verify the release instead of making it")
	if f.Parse(args) != nil {
		return 2
	}
	o.files = f.Args()
	if err := o.run(stdout, now); err != nil {
		fmt.Fprintln(stderr, "release:", err)
		return 1
	}
	return 0
}

func (o *options) run(stdout io.Writer, now func() time.Time) error {
	if o.key == "" {
		return fmt.Errorf("the key is missing: create one with `openssl genpkey -algorithm ed25519 -out release.key`, keep it secret, and set RELEASE_KEY=release.key")
	}
	if o.verify {
		key, err := readPublicKey(o.key)
		if err != nil {
			return err
		}
		return verifyRelease(o.out, key, stdout)
	}
	key, err := readPrivateKey(o.key)
	if err != nil {
		return err
	}
	if err := o.makeRelease(key, now); err != nil {
		return err
	}
	return verifyRelease(o.out, key.Public().(ed25519.PublicKey), stdout)
}
