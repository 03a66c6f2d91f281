package restore

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

// ConfigMapName is the name of the ConfigMap in serveraddr.Namespace that exists while no task is
// placed. All authenticated users may read it (config/rbac/users.yaml).
const ConfigMapName = "k8s4r-restore"

const (
	keyReason   = "reason"
	keyBackupAt = "backupAt"
)

// Hold is why no task is placed. The zero value: tasks are placed.
type Hold struct {
	Reason string // such as taskstate.ReasonAwaitingJournals
	// BackupAt is the time of the restored backup.
	BackupAt time.Time
}

// PublishHold shows the hold to users, or removes what an earlier process has published.
func PublishHold(ctx context.Context, c client.Client, h Hold) error {
	var err error
	if h.Reason == "" {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: serveraddr.Namespace, Name: ConfigMapName}}
		err = client.IgnoreNotFound(c.Delete(ctx, m))
	} else {
		data := map[string]string{keyReason: h.Reason, keyBackupAt: h.BackupAt.UTC().Format(time.RFC3339)}
		err = serveraddr.WriteConfigMap(ctx, c, c, ConfigMapName, data)
	}
	if err != nil {
		return fmt.Errorf("publish whether tasks are placed after the restore: %w", err)
	}
	return nil
}

// FindHold returns the published hold. It is zero if there is none or the caller may not read it.
func FindHold(ctx context.Context, r client.Reader) (Hold, error) {
	var m corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKey{Namespace: serveraddr.Namespace, Name: ConfigMapName}, &m)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return Hold{}, nil
	}
	if err != nil {
		return Hold{}, fmt.Errorf("read whether tasks are placed: %w", err)
	}
	at, err := time.Parse(time.RFC3339, m.Data[keyBackupAt])
	if err != nil {
		return Hold{}, fmt.Errorf("ConfigMap %s/%s: %s: %w", m.Namespace, m.Name, keyBackupAt, err)
	}
	return Hold{Reason: m.Data[keyReason], BackupAt: at}, nil
}
