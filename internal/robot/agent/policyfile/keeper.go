package policyfile

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// Config configures a Keeper.
type Config struct {
	// Path of the file. If empty, DefaultPath, which may be missing.
	Path string
	// TasksAreRoot is set if tasks that name no user run as root.
	TasksAreRoot bool
	// OnChange is called when the policy, or HasUpdateKeys, has changed since it was read last.
	OnChange func()
	Log      *slog.Logger

	owner uint32 // of the file; tests set their own
}

// Keeper holds the policy of a robot and follows its file: it reads the file whenever it is asked,
// which is before each dispatch and with each heartbeat. A file that is removed or becomes invalid
// allows nothing until it is valid again.
type Keeper struct {
	config Config

	mu      sync.Mutex // guards the fields below
	content []byte     // of the file when it was read last; nil: there was none
	current *policy.Policy
	existed bool // there was a policy since the agent started
	hasKeys bool // the file has keys that sign versions of the agent
}

// Open reads the policy for the first time. It returns an error if the file is not valid, and if a
// file that was configured does not exist.
func Open(c Config) (*Keeper, error) {
	isDefault := c.Path == ""
	if isDefault {
		c.Path = DefaultPath
	}
	k := &Keeper{config: c}
	content, p, err := k.readFile()
	switch {
	case isDefault && errors.Is(err, fs.ErrNotExist):
		return k, nil
	case err != nil:
		return nil, fmt.Errorf("policy: %w", err)
	}
	k.content, k.current, k.existed = content, p, true
	return k, nil
}

// ReadUpdateKeys returns the keys of the file at a path that sign versions of the agent. If the path is empty,
// it is DefaultPath, which may be missing: then there is no key.
func ReadUpdateKeys(path string) ([]ed25519.PublicKey, error) {
	return Config{Path: path}.readUpdateKeys()
}

func (c Config) readUpdateKeys() ([]ed25519.PublicKey, error) {
	path := cmp.Or(c.Path, DefaultPath)
	content, err := readProtected(path, c.owner)
	if c.Path == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	f, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("policy: %s: %w", path, err)
	}
	return f.UpdateKeys, nil
}

// Describe returns a sentence about the file, or the error of Open.
func Describe(c Config) (string, error) {
	k, err := Open(c)
	switch {
	case err != nil:
		return "", err
	case !k.existed:
		return "there is no policy file at " + k.config.Path + ": the robot runs what the server asks for", nil
	}
	if k.current == nil {
		return k.config.Path + " has no rules: the robot runs what the server asks for", nil
	}
	return k.config.Path + " limits what the robot runs", nil
}

// Read returns the policy as the file has it now. If it is nil, there is no file or it has no rules, and
// everything is allowed.
func (k *Keeper) Read() *policy.Policy {
	p, changed := k.refresh()
	if changed && k.config.OnChange != nil {
		k.config.OnChange()
	}
	return p
}

// HasUpdateKeys reports whether the file had keys that sign versions of the agent when it was read last.
func (k *Keeper) HasUpdateKeys() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hasKeys
}

// refresh reads the file and reports whether what is registered of it has changed.
func (k *Keeper) refresh() (p *policy.Policy, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	hadKeys := k.hasKeys
	content, p, err := k.readFile()
	if err != nil {
		k.hasKeys = false
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !k.existed:
		return nil, false
	case errors.Is(err, fs.ErrNotExist):
		p = policy.AllowNothing(k.config.Path + " was removed; restart the agent to allow everything")
	case err != nil:
		p = policy.AllowNothing(err.Error())
	}
	k.content, k.existed = content, true
	if p.Equal(k.current) {
		return k.current, k.hasKeys != hadKeys
	}
	k.current = p
	if p != nil && p.Problem != "" {
		k.config.Log.Error("the policy file cannot be used, so no task is accepted", "error", p.Problem)
	} else {
		k.config.Log.Info("the policy has changed", "policy", p.Key())
	}
	return p, true
}

// readFile returns the content of the file and the policy in it, which is the current one if the
// content is unchanged.
func (k *Keeper) readFile() ([]byte, *policy.Policy, error) {
	content, err := readProtected(k.config.Path, k.config.owner)
	if err != nil {
		return nil, nil, err
	}
	if k.content != nil && bytes.Equal(content, k.content) && (k.current == nil || k.current.Problem == "") {
		return content, k.current, nil
	}
	f, err := Parse(content)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", k.config.Path, err)
	}
	p := f.Policy
	k.hasKeys = len(f.UpdateKeys) > 0
	if p != nil && k.config.TasksAreRoot && p.Allow.Root != nil && !*p.Allow.Root {
		return nil, nil, fmt.Errorf("%s: allow.root is false, and tasks without a user run as root: configure another taskUser", k.config.Path)
	}
	return content, p, nil
}
