# SPDX-License-Identifier: Apache-2.0
"""The command lines of QEMU: one process for a guest, one for the network between guests.

All paths of sockets and files are relative to the rig's directory, where QEMU runs: a Unix socket's
name has room for 107 characters only.
"""
from util import size

QEMU = "qemu-system-x86_64"
# What QEMU 7.2 emulates of AVX and BMI spoils registers now and then: programs linked with libpmem
# crashed with another program's arguments. Without them glibc and OpenSSL take their SSE paths.
CPU = "max,xsave=off,avx=off,avx2=off,bmi1=off,bmi2=off,adx=off,pku=off,mpx=off"


def network(guests, nics):
    """A QEMU without a machine: a hub for each network, which outlives any guest."""
    argv = [QEMU, "-M", "none", "-nodefaults", "-display", "none"]
    for nic in range(nics):
        for guest in range(1, guests + 1):
            name = "g%dn%d" % (guest, nic)
            argv += ["-netdev", "dgram,id={0},local.type=unix,local.path=hub/{0},"
                                "remote.type=unix,remote.path=g{1}/nic{2}".format(name, guest, nic),
                     "-netdev", "hubport,id=h{0},hubid={1},netdev={0}".format(name, nic)]
    return argv


def memory(options):
    """RAM, a far NUMA node without CPUs, and NVDIMMs, which are files and so outlive the guest."""
    near, far = size(options["memory"]), size(options["far"] or "0")
    dimms = options["nvdimm"]
    room = near + far + sum(map(size, dimms)) + (1 << 30)
    argv = ["-machine", "pc,nvdimm=on",
            "-m", "%dM,slots=%d,maxmem=%dM" % ((near + far) >> 20, len(dimms) + 1, room >> 20)]
    if far:
        argv += ["-object", "memory-backend-ram,id=near,size=%d" % near,
                 "-object", "memory-backend-ram,id=far,size=%d" % far,
                 "-numa", "node,nodeid=0,memdev=near,cpus=0-%d" % (options["cpus"] - 1),
                 "-numa", "node,nodeid=1,memdev=far", "-numa", "dist,src=0,dst=1,val=40"]
    return argv


def guest(number, options, kernel, init):
    """One guest. `kernel` is what kernel.prepare() returned, `init` the path of guest-init."""
    vmlinux, initramfs, modules = kernel
    settings = {"guest": number, "nics": options["nics"], "mtu": options["mtu"],
                "rdma": "on" if options["rdma"] else "off",
                "pmem": options["pmem"] if options["nvdimm"] else "none",
                "modules": modules, "init": init, "cache": options["cache_mode"]}
    words = ["console=ttyS0", "quiet", "mitigations=off", "panic=-1", "random.trust_cpu=on",
             "tsc=reliable", "no_timer_check", "rcupdate.rcu_expedited=1"]
    words += ["rig.%s=%s" % item for item in settings.items()]
    argv = [QEMU, "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", str(options["cpus"]),
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-qmp", "stdio",
            "-kernel", vmlinux, "-initrd", initramfs, "-append", " ".join(words),
            "-chardev", "file,id=console,path=g%d/console.log,append=on" % number,
            "-serial", "chardev:console",
            "-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,"
                       "multidevs=remap",
            "-device", "virtio-serial-pci",
            "-chardev", "socket,id=agent,path=g%d/agent" % number,
            "-device", "virtserialport,chardev=agent,name=rig.agent"]
    argv += memory(options)
    for at, dimm in enumerate(options["nvdimm"]):
        argv += ["-object", "memory-backend-file,id=dimm{0},share=on,mem-path=g{1}/nvdimm{0},"
                            "size={2}".format(at, number, size(dimm)),
                 "-device", "nvdimm,memdev=dimm{0},id=nvdimm{0}".format(at)]
    for nic in range(options["nics"]):
        argv += ["-netdev", "dgram,id=net{1},local.type=unix,local.path=g{0}/nic{1},"
                            "remote.type=unix,remote.path=hub/g{0}n{1}".format(number, nic),
                 "-device", "virtio-net-pci,id=nic{1},netdev=net{1},host_mtu=9000,romfile=,"
                            "mac=52:54:00:6b:{1:02x}:{0:02x}".format(number, nic)]
    return argv
