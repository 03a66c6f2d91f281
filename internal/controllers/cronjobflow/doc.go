// Package cronjobflow creates JobFlows on a schedule, as the CronJob controller of
// Kubernetes creates Jobs. The name of a flow is derived from the minute at which it is
// due, so that no minute is served twice, not even after a restart, with a stale cache or
// after a change of the clock.
package cronjobflow
