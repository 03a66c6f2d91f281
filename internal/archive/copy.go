package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// CopySQLite writes a consistent copy of the SQLite archive at path to a new file, also while another
// process writes to it.
func CopySQLite(ctx context.Context, path, to string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	s, err := Open("sqlite:" + path)
	if err != nil {
		return err
	}
	if _, err = s.db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		err = fmt.Errorf("archive: copy %s: %w", path, err)
	}
	return errors.Join(err, s.Close())
}
