package runner

import "k8s4r.io/k8s4r/internal/protocol/wire"

// noSecretStore is a secretStore that keeps nothing.
type noSecretStore struct{}

// Put keeps nothing.
func (noSecretStore) Put(string, int32, wire.Secrets) error { return nil }

// Get returns no secrets.
func (noSecretStore) Get(string, int32) (wire.Secrets, error) { return nil, nil }

// Remove has nothing to remove.
func (noSecretStore) Remove(string, int32) error { return nil }

// Sweep has nothing to remove.
func (noSecretStore) Sweep(func(uid string, attempt int32) bool) error { return nil }

// keepsSecrets reports whether the values of the task's secretEnv outlive the agent.
func (attempt *attempt) keepsSecrets() bool {
	return attempt.restarts != nil && attempt.task.Spec.OfflineSecrets == wire.OfflineSecretsSealed && len(attempt.task.Spec.SecretEnv) > 0
}

// sealSecrets keeps the secrets of an attempt for the next agent, if the task asks for that. If it fails, that
// agent gets them from the server.
func (r *Runner) sealSecrets(attempt *attempt) {
	if !attempt.keepsSecrets() {
		return
	}
	if err := r.sealed.Put(attempt.task.Metadata.UID, attempt.number, attempt.secrets); err != nil {
		r.problems.Warn("a task will wait for contact if the agent is restarted", err)
	}
}

// unsealSecrets gives an attempt of an earlier agent its secrets.
func (r *Runner) unsealSecrets(attempt *attempt) {
	if !attempt.keepsSecrets() {
		return
	}
	values, err := r.sealed.Get(attempt.task.Metadata.UID, attempt.number)
	if err != nil {
		r.problems.Warn("a task waits for contact before its next run", err)
	}
	if values == nil || checkSecrets(wire.Dispatch{Task: attempt.task, Secrets: values}) != nil {
		return
	}
	attempt.secrets, attempt.restarts.secrets = values, lostSecrets{}
}

// dropSealedSecrets removes the secrets of an attempt that has ended.
func (r *Runner) dropSealedSecrets(attempt *attempt) {
	if !attempt.keepsSecrets() {
		return
	}
	if err := r.sealed.Remove(attempt.task.Metadata.UID, attempt.number); err != nil {
		r.problems.Warn("secrets of a task that has ended are left until the agent is restarted", err)
	}
}

// sweepSealedSecrets removes the secrets of attempts that are not live.
func (r *Runner) sweepSealedSecrets() {
	err := r.sealed.Sweep(func(uid string, attempt int32) bool {
		live := r.live[uid]
		return live != nil && live.number == attempt && live.keepsSecrets()
	})
	if err != nil {
		r.problems.Warn("secrets of tasks that have ended are left until the agent is restarted", err)
	}
}
