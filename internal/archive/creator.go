package archive

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// createdBy selects the UIDs of what a user created, createdByFilter tests one object.
const (
	createdBy       = "SELECT a.uid FROM actions a WHERE a.username = ? AND a.did = 'create' AND a.code < 400 AND a.uid <> ''"
	createdByFilter = "EXISTS (SELECT 1 FROM actions a WHERE a.name = o.name AND a.namespace = o.namespace AND a.uid = o.uid AND a.did = 'create' AND a.code < 400 AND a.username = ?)"
)

// ListCreatedBy returns the UIDs of the objects that a user created last, at most MaxCreated.
func (s *Store) ListCreatedBy(ctx context.Context, user string) ([]string, error) {
	var w where
	text := w.fillValues(createdBy, user) + " ORDER BY a.at DESC, a.id DESC LIMIT " + w.addArg(MaxCreated)
	return queryRows(ctx, s, "list what a user created", text, w.args, func(rows *sql.Rows) (uid string, err error) {
		err = rows.Scan(&uid)
		return uid, err
	})
}

// MaxCreated bounds the result of ListCreatedBy.
const MaxCreated = 10_000

// FindCreators returns the users who created objects, by UID. names has the objects' names by UID, at
// most MaxLimit. Objects of controllers and those whose record is gone have no user.
func (s *Store) FindCreators(ctx context.Context, names map[string]string) (map[string]string, error) {
	if len(names) > MaxLimit {
		return nil, fmt.Errorf("archive: find creators: %d objects, at most %d", len(names), MaxLimit)
	}
	var w where
	w.requireOneOf("a.name", append([]string{}, slices.Collect(maps.Values(names))...))
	w.addTerm("a.did = 'create' AND a.code < 400")
	w.opaque = true // names have an index, UIDs do not
	w.requireOneOf("a.uid", append([]string{}, slices.Collect(maps.Keys(names))...))
	found := map[string]string{}
	_, err := queryRows(ctx, s, "find creators", "SELECT a.uid, a.username FROM actions a"+w.String(), w.args, func(rows *sql.Rows) (struct{}, error) {
		var uid, user string
		err := rows.Scan(&uid, &user)
		found[uid] = user
		return struct{}{}, err
	})
	return found, err
}
