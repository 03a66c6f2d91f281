// Package job turns a Job into TaskGroups and adds them up to its status.
package job
