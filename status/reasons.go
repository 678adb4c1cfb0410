package status

import corev1 "k8s.io/api/core/v1"

// ShutdownProtected reports whether a shutdown of the host waits for its pods. It
// is hostler's own condition: True is good.
const ShutdownProtected corev1.NodeConditionType = "hostler.io/ShutdownProtected"

// The reasons that conditions carry. docs/reference/conditions.md explains each one and
// says what to do; a test keeps the two lists alike.
const (
	// ReasonNotMeasured: what the condition is about could not be read.
	ReasonNotMeasured = "NotMeasured"

	// ReasonHostReady: every runtime is ready and nothing else prevents pods.
	ReasonHostReady = "HostReady"
	// ReasonStarting: the agent has just started, and has not queried a runtime, or logind, yet.
	ReasonStarting = "Starting"
	// ReasonDraining: the host's pods are being stopped.
	ReasonDraining = "Draining"
	// ReasonNoRuntime: no container runtime was found.
	ReasonNoRuntime = "NoRuntime"
	// ReasonRuntimeDown: a runtime does not answer, or says that it is not ready.
	ReasonRuntimeDown = "RuntimeDown"
	// ReasonImageFilesystemUnknown: the filesystem that holds images is not known
	// or does not answer.
	ReasonImageFilesystemUnknown = "ImageFilesystemUnknown"

	// ReasonSufficientMemory: more memory is available than the threshold.
	ReasonSufficientMemory = "SufficientMemory"
	// ReasonInsufficientMemory: less is, or was within the transition period.
	ReasonInsufficientMemory = "InsufficientMemory"

	// ReasonSufficientDisk: every filesystem has more free than its thresholds.
	ReasonSufficientDisk = "SufficientDisk"
	// ReasonNodeFilesystemSpace: the node filesystem has too few bytes free.
	ReasonNodeFilesystemSpace = "NodeFilesystemSpace"
	// ReasonStartFilesystemSpace: a filesystem that a pod's start writes to has no bytes left for it.
	ReasonStartFilesystemSpace = "StartFilesystemSpace"
	// ReasonStartFilesystemInodes: the same with inodes.
	ReasonStartFilesystemInodes = "StartFilesystemInodes"
	// ReasonNodeFilesystemInodes: the node filesystem has too few inodes free.
	ReasonNodeFilesystemInodes = "NodeFilesystemInodes"
	// ReasonImageFilesystemSpace: an image filesystem has too few bytes free.
	ReasonImageFilesystemSpace = "ImageFilesystemSpace"
	// ReasonImageFilesystemInodes: an image filesystem has too few inodes free.
	ReasonImageFilesystemInodes = "ImageFilesystemInodes"

	// ReasonSufficientPIDs: more processes can be started than the threshold.
	ReasonSufficientPIDs = "SufficientPIDs"
	// ReasonInsufficientPIDs: fewer can, or could within the transition period.
	ReasonInsufficientPIDs = "InsufficientPIDs"

	// ReasonStallsBelowThreshold: tasks stalled for no more of the time than the
	// threshold.
	ReasonStallsBelowThreshold = "StallsBelowThreshold"
	// ReasonStallsAboveThreshold: they stalled for more, or did within the transition
	// period.
	ReasonStallsAboveThreshold = "StallsAboveThreshold"
	// ReasonPSIUnavailable: the kernel keeps no pressure stall information.
	ReasonPSIUnavailable = "PSIUnavailable"

	// ReasonNetworkAvailable: the host has an address on a live link.
	ReasonNetworkAvailable = "NetworkAvailable"
	// ReasonNoAddress: no interface has an address that other hosts could reach.
	ReasonNoAddress = "NoAddress"
	// ReasonAddressMissing: no interface has an address that node.address.internal
	// requests.
	ReasonAddressMissing = "AddressMissing"
	// ReasonNoCarrier: the link that holds the Node's address is down.
	ReasonNoCarrier = "NoCarrier"

	// ReasonArmed: a shutdown will wait for the pods.
	ReasonArmed = "Armed"
	// ReasonShuttingDown: a shutdown is waiting for the pods.
	ReasonShuttingDown = "ShuttingDown"
	// ReasonReleased: the pods are gone and the shutdown continues.
	ReasonReleased = "Released"
	// ReasonDelegated: another program delays the shutdown for the pods.
	ReasonDelegated = "Delegated"
	// ReasonDelayTooShort: a shutdown will wait for the pods, but not for as long
	// as they are to have.
	ReasonDelayTooShort = "DelayTooShort"
	// ReasonPodsOutOfReach: a shutdown would wait, but no runtime, or not every
	// one, answers the call to stop pods.
	ReasonPodsOutOfReach = "PodsOutOfReach"
	// ReasonSwitchedOff: the configuration does not want a shutdown to wait.
	ReasonSwitchedOff = "SwitchedOff"
	// ReasonNoBus: the system bus, over which locks are taken, does not answer.
	ReasonNoBus = "NoBus"
	// ReasonNoLogind: nobody on the bus is the login manager, which gives locks.
	ReasonNoLogind = "NoLogind"
	// ReasonNoLock: the login manager is there, but gave no lock.
	ReasonNoLock = "NoLock"
	// ReasonDisarmed: a shutdown does not wait for pods yet, because hostler has
	// just lost or regained the login manager.
	ReasonDisarmed = "Disarmed"

	// ReasonCheckPassed: a check of the administrator's own found nothing wrong. What
	// it is where one found something its file says.
	ReasonCheckPassed = "CheckPassed"
	// ReasonCheckUnknown: the result is unknown, or a signal ended the check.
	ReasonCheckUnknown = "CheckUnknown"
	// ReasonCheckTimedOut: it did not end in time.
	ReasonCheckTimedOut = "CheckTimedOut"
	// ReasonCheckNotRun: it could not be started, or is at fault and was not.
	ReasonCheckNotRun = "CheckNotRun"
)
