# SPDX-License-Identifier: Apache-2.0
"""The kernel and the initramfs of the guests, made once and kept in a cache directory.

The kernel is Debian's own, from its package, unpacked without being installed. It is decompressed
here, once, because an emulated guest would need seconds for it at each boot.
"""
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess

from util import RigError

HERE = os.path.dirname(os.path.abspath(__file__))
META_PACKAGE = "linux-image-amd64"
# What the initramfs needs to reach the host's tree and the keeper; the rest is loaded from the
# tree.
EARLY_MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console"]


def output(*argv, **more):
    try:
        return subprocess.run(argv, check=True, capture_output=True, timeout=300, **more).stdout
    except FileNotFoundError:
        raise RigError("%s is missing; scripts/install-deps installs it" % argv[0])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise RigError("%s: %s" % (" ".join(argv[:3]), lines[-1]))
    except subprocess.TimeoutExpired:
        raise RigError("%s did not end in 300 s" % " ".join(argv[:3]))


def decompress(bzimage, to):
    """Writes the ELF image that lies compressed in a bzImage (its header says where)."""
    with open(bzimage, "rb") as file:
        data = file.read()
    setup_sectors = data[0x1f1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    try:
        image = lzma.LZMADecompressor().decompress(data[start:start + length])
    except lzma.LZMAError:
        shutil.copy(bzimage, to)  # packed in another way: it boots as it is
        return
    with open(to, "wb") as file:
        file.write(image)


def fetch(cache):
    """Downloads and unpacks the package; its directory, named for its version, appears whole."""
    work = os.path.join(cache, "new")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    try:
        depends = output("apt-cache", "show", "--no-all-versions", META_PACKAGE).decode()
    except RigError:  # a machine without apt's lists
        output("apt-get", "update", "-qq")
        depends = output("apt-cache", "show", "--no-all-versions", META_PACKAGE).decode()
    found = re.search(r"^Depends: (linux-image-(\S+))", depends, re.M)
    if not found:
        raise RigError("package %s names no kernel" % META_PACKAGE)
    package, version = found.groups()
    output("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", package, cwd=work)
    deb = glob.glob(os.path.join(work, "*.deb"))[0]
    output("dpkg-deb", "-x", deb, work)
    os.unlink(deb)
    decompress("%s/boot/vmlinuz-%s" % (work, version), work + "/vmlinux")
    for waste in ("boot", "usr", "lib/modules/%s/kernel/drivers/gpu" % version,
                  "lib/modules/%s/kernel/drivers/media" % version,
                  "lib/modules/%s/kernel/sound" % version):
        shutil.rmtree(os.path.join(work, waste), ignore_errors=True)
    output("depmod", "-b", work, version)
    os.rename(work, os.path.join(cache, version))


def make_initramfs(kernel, version, path):
    work = path + ".new"
    shutil.rmtree(work, ignore_errors=True)
    for name in ("bin", "modules", "proc", "lower", "upper", "new", "dev"):
        os.makedirs(os.path.join(work, name))
    shutil.copy("/bin/busybox", work + "/bin/busybox")
    shutil.copy(HERE + "/initramfs-init", work + "/init")
    os.chmod(work + "/init", 0o755)
    order = []
    for module in EARLY_MODULES:
        shown = output("modprobe", "-d", kernel, "-S", version, "--show-depends", module).decode()
        for line in shown.splitlines():
            file = line.split()[1] if line.startswith("insmod ") else None
            if file and os.path.basename(file) not in order:
                order.append(os.path.basename(file))
                shutil.copy(file, work + "/modules")
    with open(work + "/modules/order", "w", encoding="ascii") as file:
        file.write("\n".join(order) + "\n")
    names = "\n".join(os.path.relpath(os.path.join(top, name), work)
                      for top, dirs, files in os.walk(work) for name in dirs + files)
    packed = output("cpio", "--quiet", "-o", "-H", "newc", cwd=work, input=names.encode())
    with open(path + ".part", "wb") as file:
        file.write(packed)
    os.rename(path + ".part", path)
    shutil.rmtree(work)


def prepare(cache):
    """Returns (vmlinux, initramfs, modules) below `cache`, made where they are missing."""
    if not os.path.exists("/bin/busybox"):
        raise RigError("/bin/busybox is missing; scripts/install-deps installs busybox-static")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kernels = sorted(glob.glob(os.path.join(cache, "[0-9]*", "vmlinux")), key=os.path.getmtime)
        if not kernels:
            fetch(cache)
            kernels = glob.glob(os.path.join(cache, "[0-9]*", "vmlinux"))
        kernel = os.path.dirname(kernels[-1])
        version = os.path.basename(kernel)
        with open(HERE + "/initramfs-init", "rb") as init, open("/bin/busybox", "rb") as busybox:
            mark = repr(EARLY_MODULES).encode() + init.read() + busybox.read()
        initramfs = "%s/initramfs-%s" % (kernel, hashlib.sha256(mark).hexdigest()[:16])
        if not os.path.exists(initramfs):
            make_initramfs(kernel, version, initramfs)
    return kernel + "/vmlinux", initramfs, "%s/lib/modules/%s" % (kernel, version)
