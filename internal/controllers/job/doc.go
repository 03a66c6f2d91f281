// Package job creates the TaskGroups of Jobs and aggregates their status.
package job
