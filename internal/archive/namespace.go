package archive

import (
	"context"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

// Namespace is one namespace that had a name. Another one may have the name after it is deleted,
// and its owner must not see the rows of the first.
type Namespace struct {
	Name string
	// UID of the namespace. A Namespace without one has no rows.
	UID string
}

// requireNamespaces requires rows of one of the namespaces. Nil: any; empty: none matches. The
// columns are those of the table with the prefix, such as "o.".
func (w *where) requireNamespaces(prefix string, namespaces []Namespace) {
	if namespaces == nil {
		return
	}
	names, uids := []string{}, []string{}
	for _, n := range namespaces {
		if n.UID != "" { // rows without a UID are those of an unknown namespace
			names, uids = append(names, n.Name), append(uids, n.UID)
		}
	}
	// A UID is that of one name only. The name is in the indexes.
	w.requireOneOf(prefix+"namespace", names)
	w.requireOneOf(prefix+"namespace_uid", uids)
}

// BindNamespace binds the rows without a UID to a namespace of their name: those of objects that
// were created since then. Programs before format 11 have recorded them.
func (s *Store) BindNamespace(ctx context.Context, n Namespace, created time.Time) error {
	if n.UID == "" {
		return fmt.Errorf("archive: bind namespace %s: uid is missing", n.Name)
	}
	err := s.inTransaction(ctx, func(q *sqldb.Queries) error {
		bound, err := q.BindObjects(ctx, sqldb.BindObjectsParams{NamespaceUid: n.UID, Namespace: n.Name, CreatedAt: created.UnixMicro()})
		if err != nil || bound == 0 {
			return err
		}
		return q.BindAttempts(ctx, sqldb.BindAttemptsParams{NamespaceUid: n.UID, Namespace: n.Name})
	})
	if err != nil {
		return fmt.Errorf("archive: bind namespace %s: %w", n.Name, err)
	}
	return nil
}

// ListUnboundNamespaces returns the names of namespaces with rows that have no UID.
func (s *Store) ListUnboundNamespaces(ctx context.Context) ([]string, error) {
	q, err := s.readyQueries(ctx)
	if err != nil {
		return nil, err
	}
	names, err := q.UnboundNamespaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("archive: list namespaces: %w", err)
	}
	return names, nil
}
