package conformance

// Feature is a feature of a control plane, in words for people who choose a control plane.
type Feature string

// The features, grouped by topic.
const (
	registers           Feature = "A host registers itself, and keeps its Node when it restarts"
	reconcile           Feature = "Configured labels and annotations are set; labels, taints and a cordon of others are kept"
	keepsTaints         Feature = "Configured taints are kept, also on an existing Node"
	refuses             Feature = "Of two hosts with one name, the second is refused with an error that names the other machine"
	replaces            Feature = "A reinstalled or replaced host gets the name after the previous host's lease expired"
	reports             Feature = "The host's status is stored; addresses and conditions of others are kept"
	watches             Feature = "hostler sees changes of others on a Node at once"
	besideKubelet       Feature = "Next to a kubelet, hostler adds its own conditions and changes nothing else"
	listsFleet          Feature = "`hostler nodes` shows all hosts of the fleet"
	paces               Feature = "One setting makes all hosts send fewer heartbeats"
	heartbeats          Feature = "Heartbeats: a Lease with one writer, whose time only increases"
	expires             Feature = "The Lease of a dead host is removed automatically"
	publishesEvents     Feature = "Events about the host are published"
	lists               Feature = "hostler can list Events: in order, a repeated one once, with its count"
	bounds              Feature = "The number of Events is bounded"
	toleratesFaults     Feature = "A server that is slow, unreachable or drops the connection blocks nothing"
	rejectsWrongObjects Feature = "An answer with another object is rejected"
	limits              Feature = "Names of up to 253 characters and ten thousand labels are supported"
	leaves              Feature = "A host that is deregistered deletes its Node and Lease, never those of another machine"
	persists            Feature = "All objects are kept across a restart of the agent"
)

// Features returns all features, the most important ones for a choice first.
func Features() []Feature {
	return []Feature{
		registers, reconcile, keepsTaints, reports, refuses, replaces, leaves, heartbeats, expires, toleratesFaults, rejectsWrongObjects,
		publishesEvents, lists, bounds, watches, besideKubelet, listsFleet, paces, limits, persists,
	}
}

// Checks returns all checks. Each is independent of the others. For a control plane with one Node
// at a time, they run one after another.
func Checks() []Check {
	return []Check{
		{"a new node is stored as requested", registers, checkRegister},
		{"a node that is registered again is not changed", registers, checkRegisterAgain},
		{"hostler's labels and annotations are reconciled, others are kept", reconcile, checkReconcile},
		{"taints and cordon of others are kept", reconcile, checkSpecKept},
		{"one annotation is set and removed, and nothing else is changed", reconcile, checkAnnotate},
		{"hostler's taints are reconciled where a host may change them", keepsTaints, checkTaintsReconciled},
		{"a node is not created if it may only be adopted", registers, checkAdoptOnly},
		{"a node of another running machine is refused with an error that names both", refuses, checkRefused},
		{"a clone with the same machine ID is refused", refuses, checkCloneRefused},
		{"of many machines that register one name at once, one gets it", refuses, checkRegisterRace},
		{"of two machines, the one that holds the lease gets the node", refuses, checkHolderRace},
		{"a node of another machine is taken over if configured", replaces, checkTakeover},
		{"a node of a machine with an expired lease is replaced or taken over", replaces, checkDeadReplaced},
		{"a lease expires only after it was watched, by no other clock", replaces, checkWatched},
		{"a node with this machine's status is not deleted because of its annotations", replaces, checkAnnotationsChanged},
		{"a machine that is deregistered deletes no other machine's node", leaves, checkLeaveOwn},
		{"a node without a lease is replaced after 40 seconds", replaces, checkNoLease},
		{"a node that may only be adopted is taken over with its uid", replaces, checkAdoptOnlyTakenOver},
		{"a machine with a valid lease gets its own node again", registers, checkOwnNode},
		{"a status is stored and changes nothing else", reports, checkStatus},
		{"a status and concurrent changes of others are both stored", reports, checkStatusRace},
		{"a status without addresses keeps the existing ones", reports, checkAddressesKept},
		{"conditions of others are kept", reports, checkConditionsKept},
		{"conditions on another owner's node change nothing else", besideKubelet, checkConditionsAdded},
		{"conditions are decided by the writer of the status, not by earlier annotations", besideKubelet, checkConditionsByReporter},
		{"a fleet is listed by name and with its leases", listsFleet, checkFleet},
		{"the lease duration of all hosts is reported as it changes", paces, checkPace},
		{"a watch reports each change and the deletion of the node", watches, checkWatch},
		{"a node deleted while the agent runs is registered again", registers, checkDeleted},
		{"a lease is created, renewed and read", heartbeats, checkLease},
		{"a lease that another client has written is not overwritten", heartbeats, checkLeaseConflict},
		{"of many renewals from one version, one is stored", heartbeats, checkLeaseRace},
		{"renewTime moves forward even if the clock does not", heartbeats, checkRenewTime},
		{"a lease that is not renewed is removed, and counts as expired", expires, checkExpiry},
		{"events are published with any valid object name", publishesEvents, checkPublished},
		{"events keep their order", lists, checkEvents},
		{"a repeated event replaces its first, and is listed last", lists, checkEventRepeated},
		{"events are bounded", bounds, checkEventsBounded},
		{"a call whose context has ended ends", toleratesFaults, checkCancelled},
		{"a call ends whenever it is cancelled, and leaves nothing behind", toleratesFaults, checkCancelledAnytime},
		{"a slow answer is awaited until the caller's deadline", toleratesFaults, checkSlow},
		{"a call that is never answered ends when it is cancelled, and leaves nothing behind", toleratesFaults, checkNoAnswer},
		{"a call that is never answered ends by its own deadline", toleratesFaults, checkDeadline},
		{"a call whose answer was lost can be repeated", toleratesFaults, checkLost},
		{"an answer with another object is rejected", rejectsWrongObjects, checkWrongObject},
		{"names at the length limit are accepted, longer ones refused", limits, checkNames},
		{"ten thousand labels are stored", limits, checkManyLabels},
		{"arguments and results may be changed by the caller", registers, checkCopies},
		{"deregistering deletes node and lease, once or twice", leaves, checkLeave},
		{"all objects are kept across a restart", persists, checkRestart},
	}
}
