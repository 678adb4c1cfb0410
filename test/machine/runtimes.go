package machine

import "hostler.io/hostler/test/machine/job"

// A machine has Debian's Docker and Podman, not started. They need options, because the machine has
// no network, and a container has neither cgroup controllers nor overlays on its root.

// DockerFiles are files that configure the machine's Docker.
func DockerFiles(o Options) map[string]string {
	driver := "overlay2"
	if o.Bed == Container {
		driver = "vfs"
	}
	return map[string]string{
		"etc/docker/daemon.json": `{"bridge": "none", "iptables": false, "ip-forward": false, "storage-driver": "` + driver + `"}`,
		// Containers that run in several boots record the boot.
		"etc/systemd/system/docker.service.d/boot_id.conf": "[Service]\nExecStartPre=install -D /proc/sys/kernel/random/boot_id " + job.Dir + "/" + job.BootFile + "\n",
	}
}

// PodmanFiles are files that configure the machine's Podman. Its infra containers use the only
// image.
func PodmanFiles() map[string]string {
	return map[string]string{
		"etc/containers/policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
		"etc/containers/storage.conf":    "[storage]\ndriver = \"vfs\"\ngraphroot = \"/var/lib/containers/storage\"\nrunroot = \"/run/containers/storage\"\n",
		"etc/containers/containers.conf": "[containers]\nnetns = \"none\"\nlog_driver = \"k8s-file\"\npids_limit = 0\n[engine]\nruntime = \"runc\"\ninfra_image = \"" + job.Image + "\"\n[engine.runtimes]\nrunc = [\"/usr/local/sbin/runc\"]\n",
	}
}
