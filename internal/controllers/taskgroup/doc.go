// Package taskgroup creates the Tasks of TaskGroups and aggregates their states.
//
// A large group is created in a moving window: replicas with a reserved robot are created
// bound to it, in one write, and a few more without a robot so that users see what waits
// and why. Replicas that do not exist yet cost nothing to cancel. A Task that a user
// deletes while its group runs is created again and runs again.
package taskgroup
