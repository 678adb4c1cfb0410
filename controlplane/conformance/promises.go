package conformance

// Feature is a part of what a control plane does for a fleet, in words for whoever
// chooses one.
type Feature string

// The features, as Features lists them.
const (
	registers Feature = "A host registers itself, and is known again when it comes back"
	reconcile Feature = "Configured labels and annotations are set; labels, taints and a cordon of others stay"
	mends     Feature = "Configured taints are kept, also on a Node that is there already"
	refuses   Feature = "Two hosts of one name: the second one is refused, and told which machine has it"
	replaces  Feature = "A host that was reinstalled or exchanged gets the name once the one before is dead"
	reports   Feature = "The host's status is stored; addresses and conditions that others keep stay"
	watches   Feature = "What others change on a Node, hostler hears of at once"
	beside    Feature = "Beside a kubelet, hostler adds its own conditions and touches nothing else"
	finds     Feature = "Clones of a host, with the same machine ID, are found in the fleet"
	overlooks Feature = "`hostler nodes` shows all hosts of the fleet"
	paces     Feature = "All hosts at once can be asked for fewer heartbeats"
	beats     Feature = "Heartbeats: a Lease with one writer, whose time only moves on"
	expires   Feature = "The Lease of a host that is dead goes by itself"
	tells     Feature = "Events about the host are published"
	lists     Feature = "hostler itself can list them: in order, a repeated one once, with its count"
	bounds    Feature = "Events cannot pile up: their number is bounded"
	answers   Feature = "A server that is slow, silent or breaks off holds nothing up"
	doubts    Feature = "An answer of another object is not believed"
	limits    Feature = "Names of up to 253 characters, and ten thousand labels"
	leaves    Feature = "A host that leaves takes its Node and Lease along, and never another machine's"
	remembers Feature = "All is there after a restart of the agent"
)

// Features are all of them, those first that matter most to who chooses.
func Features() []Feature {
	return []Feature{
		registers, reconcile, mends, reports, refuses, replaces, leaves, beats, expires, answers, doubts,
		tells, lists, bounds, watches, beside, overlooks, finds, paces, limits, remembers,
	}
}

// Checks are all promises, each independent of the others. A control plane that
// keeps one Node at a time serves them one after another.
func Checks() []Check {
	return []Check{
		{"a new node is stored as it is wanted", registers, checkRegister},
		{"a node that is registered again stays as it is", registers, checkRegisterAgain},
		{"labels and annotations of hostler's follow its wishes, others stay", reconcile, checkReconcile},
		{"taints and cordon stay as others left them", reconcile, checkSpecKept},
		{"taints of hostler's follow its wishes where a host may change them", mends, checkTaintsReconciled},
		{"a node is not created where it may only be adopted", registers, checkAdoptOnly},
		{"a node of another machine that is alive is refused, naming both", refuses, checkRefused},
		{"a clone with the same machine ID is refused", refuses, checkCloneRefused},
		{"of many machines that register one name at once one gets it", refuses, checkRegisterRace},
		{"of two machines the one that holds the lease gets the node", refuses, checkHolderRace},
		{"a node of another machine is taken over if asked", replaces, checkTakeover},
		{"a node of a machine that is dead is replaced or taken over", replaces, checkDeadReplaced},
		{"a machine is dead by nobody's clock but once its lease was watched", replaces, checkWatched},
		{"a node with this machine's status is not deleted for what is noted on it", replaces, checkNotesSpoiled},
		{"a machine that leaves takes no other's node away", leaves, checkLeaveOwn},
		{"a node without a lease is nobody's who lives", replaces, checkNoLease},
		{"a node that may only be adopted is taken over with its uid", replaces, checkAdoptOnlyTakenOver},
		{"a machine with a live lease gets its own node back", registers, checkOwnNode},
		{"a status is stored and touches nothing else", reports, checkStatus},
		{"a status and what others change at the same time are both stored", reports, checkStatusRace},
		{"a status without addresses leaves those that are there", reports, checkAddressesKept},
		{"conditions of others stay", reports, checkConditionsKept},
		{"conditions on another's node touch nothing else", beside, checkConditionsAdded},
		{"conditions go by who writes the status and not by what hostler noted before", beside, checkConditionsByReporter},
		{"a machine is found in the fleet", finds, checkNodesOf},
		{"a fleet is told by name and with its leases", overlooks, checkFleet},
		{"what is asked of all leases is told as it changes", paces, checkPace},
		{"a watch tells of each change and of the node's end", watches, checkWatch},
		{"a node deleted while the agent runs is registered again", registers, checkDeleted},
		{"a lease is created, renewed and read", beats, checkLease},
		{"a lease that someone else has written is not overwritten", beats, checkLeaseConflict},
		{"of many renewals from one version one is stored", beats, checkLeaseRace},
		{"renewTime moves forward whatever the clock does", beats, checkRenewTime},
		{"a lease that is not renewed goes, and its machine is dead by that", expires, checkExpiry},
		{"events are published, with any name that an object may have", tells, checkPublished},
		{"events keep their order", lists, checkEvents},
		{"a repeated event takes the place of its first, and comes last", lists, checkEventRepeated},
		{"events are bounded", bounds, checkEventsBounded},
		{"a call whose context has ended ends", answers, checkCancelled},
		{"a call that is cancelled at any moment ends, and leaves nothing behind", answers, checkCancelledAnytime},
		{"a slow answer is waited for, and no longer than its caller wants", answers, checkSlow},
		{"a call that is never answered ends when it is cancelled, and leaves nothing behind", answers, checkSilent},
		{"a call that is never answered ends by a deadline of its own", answers, checkDeadline},
		{"what was done and not answered can be done again", answers, checkLost},
		{"an answer of another object is not believed", doubts, checkLying},
		{"names at the limit are served, others refused", limits, checkNames},
		{"ten thousand labels are stored", limits, checkManyLabels},
		{"objects given and returned are the caller's", registers, checkCopies},
		{"leaving takes node and lease away, once or twice", leaves, checkLeave},
		{"all is there after a restart", remembers, checkRestart},
	}
}
