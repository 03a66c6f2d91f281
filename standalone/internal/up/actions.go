package up

import (
	"context"
	"errors"
	"fmt"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/standalone/internal/auditlog"
	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
)

// addActions adds the component that records from the audit log in the archive what users did, if there
// is an archive.
func (s *system) addActions() error {
	address := s.opts.archiveAddress()
	if address == "" {
		return nil
	}
	store, err := archive.Open(address)
	if err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	reader := auditlog.NewReader(controlplane.AuditDir(s.dir.Path), store, s.log)
	run := func(ctx context.Context) error { return errors.Join(reader.Run(ctx), store.Close()) }
	s.group.Add("actions of users", component.NewBackground(run, nil))
	return nil
}
