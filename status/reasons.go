package status

import corev1 "k8s.io/api/core/v1"

// ShutdownProtected reports whether a shutdown of the host waits for its pods. It is hostler's own
// condition: True is good.
const ShutdownProtected corev1.NodeConditionType = "hostler.io/ShutdownProtected"

// The reasons of conditions. docs/reference/conditions.md explains each reason and its fix; a test
// compares the two lists.
const (
	// ReasonNotMeasured: the value could not be read.
	ReasonNotMeasured = "NotMeasured"

	// ReasonHostReady: every runtime is ready and nothing else prevents pods from running.
	ReasonHostReady = "HostReady"
	// ReasonStarting: the agent has just started, and has not queried all runtimes or logind yet.
	ReasonStarting = "Starting"
	// ReasonDraining: the host's pods are being stopped.
	ReasonDraining = "Draining"
	// ReasonNoRuntime: no container runtime was found.
	ReasonNoRuntime = "NoRuntime"
	// ReasonRuntimeDown: a runtime does not answer, or reports that it is not ready.
	ReasonRuntimeDown = "RuntimeDown"
	// ReasonImageFilesystemUnknown: the filesystem of images is unknown or does not answer.
	ReasonImageFilesystemUnknown = "ImageFilesystemUnknown"

	// ReasonSufficientMemory: available memory is not below the threshold.
	ReasonSufficientMemory = "SufficientMemory"
	// ReasonInsufficientMemory: available memory is below the threshold, or was within the
	// transition period.
	ReasonInsufficientMemory = "InsufficientMemory"

	// ReasonSufficientDisk: free bytes and inodes of every filesystem are not below their
	// thresholds.
	ReasonSufficientDisk = "SufficientDisk"
	// ReasonNodeFilesystemSpace: the node filesystem has too few bytes free.
	ReasonNodeFilesystemSpace = "NodeFilesystemSpace"
	// ReasonStartFilesystemSpace: a filesystem to which the start of a pod writes has no free bytes
	// for it.
	ReasonStartFilesystemSpace = "StartFilesystemSpace"
	// ReasonStartFilesystemInodes: a filesystem to which the start of a pod writes has no free
	// inodes for it.
	ReasonStartFilesystemInodes = "StartFilesystemInodes"
	// ReasonNodeFilesystemInodes: the node filesystem has too few inodes free.
	ReasonNodeFilesystemInodes = "NodeFilesystemInodes"
	// ReasonImageFilesystemSpace: an image filesystem has too few bytes free.
	ReasonImageFilesystemSpace = "ImageFilesystemSpace"
	// ReasonImageFilesystemInodes: an image filesystem has too few inodes free.
	ReasonImageFilesystemInodes = "ImageFilesystemInodes"

	// ReasonSufficientPIDs: the number of processes that can be started is not below the threshold.
	ReasonSufficientPIDs = "SufficientPIDs"
	// ReasonInsufficientPIDs: the number of processes that can be started is below the threshold,
	// or was within the transition period.
	ReasonInsufficientPIDs = "InsufficientPIDs"

	// ReasonStallsBelowThreshold: the share of time in which tasks stalled is not above the
	// threshold.
	ReasonStallsBelowThreshold = "StallsBelowThreshold"
	// ReasonStallsAboveThreshold: the share of time in which tasks stalled is above the threshold,
	// or was within the transition period.
	ReasonStallsAboveThreshold = "StallsAboveThreshold"
	// ReasonPSIUnavailable: the kernel provides no pressure stall information.
	ReasonPSIUnavailable = "PSIUnavailable"

	// ReasonNetworkAvailable: the host has an address on a link that is up.
	ReasonNetworkAvailable = "NetworkAvailable"
	// ReasonNoAddress: no interface has an address that other hosts could reach.
	ReasonNoAddress = "NoAddress"
	// ReasonAddressMissing: no interface has an address that node.address.internal selects.
	ReasonAddressMissing = "AddressMissing"
	// ReasonNoCarrier: the link with the Node's address is down.
	ReasonNoCarrier = "NoCarrier"

	// ReasonArmed: a shutdown will wait for the pods.
	ReasonArmed = "Armed"
	// ReasonShuttingDown: a shutdown is waiting for the pods.
	ReasonShuttingDown = "ShuttingDown"
	// ReasonReleased: the pods have stopped and the shutdown continues.
	ReasonReleased = "Released"
	// ReasonDelegated: another program delays the shutdown for the pods.
	ReasonDelegated = "Delegated"
	// ReasonDelayTooShort: a shutdown will wait for the pods, but not as long as configured.
	ReasonDelayTooShort = "DelayTooShort"
	// ReasonPodsOutOfReach: a shutdown would wait, but at least one runtime does not answer, so its
	// pods cannot be stopped.
	ReasonPodsOutOfReach = "PodsOutOfReach"
	// ReasonSwitchedOff: shutdown protection is disabled in the configuration.
	ReasonSwitchedOff = "SwitchedOff"
	// ReasonNoBus: the system bus, which is needed to take a lock, does not answer.
	ReasonNoBus = "NoBus"
	// ReasonNoLogind: there is no login manager on the bus, which grants locks.
	ReasonNoLogind = "NoLogind"
	// ReasonNoLock: the login manager did not grant a lock.
	ReasonNoLock = "NoLock"
	// ReasonDisarmed: a shutdown does not wait for pods at the moment, because hostler has just
	// lost the login manager or found it again.
	ReasonDisarmed = "Disarmed"

	// ReasonCheckPassed: a custom check found no problem. If it found one, the reason is in its
	// header.
	ReasonCheckPassed = "CheckPassed"
	// ReasonCheckUnknown: the result of a custom check is unknown, or a signal ended the check.
	ReasonCheckUnknown = "CheckUnknown"
	// ReasonCheckTimedOut: a custom check did not end in time.
	ReasonCheckTimedOut = "CheckTimedOut"
	// ReasonCheckNotRun: a custom check could not be started, or was not started because of a
	// fault.
	ReasonCheckNotRun = "CheckNotRun"
)
