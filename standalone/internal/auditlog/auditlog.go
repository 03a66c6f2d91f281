// Package auditlog configures the audit log of the API server in this process, and records from it in
// the archive who did what to which object of K8s4r.
//
// The log is read by position, which is stored with what was read from it, so that a restart or a kill
// neither loses nor repeats an action. Only a log that is rotated away unread, because the archive was
// down for long, loses some.
package auditlog

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

//go:embed policy.yaml
var policy []byte

const (
	// maxFileMB and maxBackups bound the log: with the current file and one that is about to be removed,
	// it takes up to 9 files of 10 MiB, which is less than 100 MB.
	maxFileMB  = 10
	maxBackups = 7
	// fileName of the current file. Rotated ones are named audit-TIME.log.
	fileName = "audit.log"
)

// ProcessUser is the user as which this process connects to its API server. It differs from that of the
// administrator's kubeconfig, so that the log distinguishes requests of our programs from those of people.
const ProcessUser = "k8s4r-up"

// WriteConfig creates the directory of the log, readable by its owner only, writes the policy into it,
// and returns the flags of kube-apiserver.
func WriteConfig(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	file := filepath.Join(dir, "policy.yaml")
	if err := keyfile.WriteFile(file, policy); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return []string{
		"--audit-policy-file=" + file,
		"--audit-log-path=" + filepath.Join(dir, fileName),
		"--audit-log-format=json",
		"--audit-log-mode=blocking", // before the answer to the client: a kill loses no action
		"--audit-log-maxsize=" + strconv.Itoa(maxFileMB),
		"--audit-log-maxbackup=" + strconv.Itoa(maxBackups),
	}, nil
}
