// Package cronjobflow creates JobFlows at the times of a schedule, as the CronJob
// controller of Kubernetes creates Jobs (contract §4 row 10).
//
// The name of a flow is derived from the minute that it is due at. So no minute is
// served twice, whatever becomes of the manager, its cache or its clock.
package cronjobflow
