/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mirror of kvfs bench --replication: kvfs mirror -f as a child process, from this program's
 * own file. Started by exec, not by fork alone: the RDMA libraries keep state that a child must not
 * share. Its messages go to a file, of which the last line says why it ended.
 */
#include "fs/bench/bench_site.h"

#include "common/clock.h"
#include "fs/admin/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIRROR_START_NS (20 * NSEC_PER_SEC)
#define MIRROR_LOOK_SECONDS 0.02
#define MIRROR_STOP_MS 10000
#define MIRROR_ARGS_BYTES 1024

struct mirror_command {
	char volume[PATH_MAX], log[PATH_MAX], options[MIRROR_ARGS_BYTES];
};

static const char *mirror_scheme(enum addr_kind kind)
{
	return kind == ADDR_SHM ? "shm" : kind == ADDR_VERBS ? "verbs" : "tcp";
}

static int mirror_command_of(const struct bench_site *s, unsigned i, enum addr_kind kind,
			     const char *options, struct mirror_command *ret_c, struct addr *ret_a)
{
	char name[24];
	int n;

	snprintf(name, sizeof(name), "mirror%u", i + 1);
	bench_site_volume(s, name, ret_c->volume);
	snprintf(name, sizeof(name), "mirror%u.log", i + 1);
	bench_site_volume(s, name, ret_c->log);
	memset(ret_a, 0, sizeof(*ret_a));
	ret_a->kind = kind;
	if (kind == ADDR_SHM)
		n = snprintf(ret_a->host, sizeof(ret_a->host), "%s/%u.sock", s->path, i + 1);
	else
		n = snprintf(ret_a->host, sizeof(ret_a->host), "127.0.0.1");
	if (n >= (int)sizeof(ret_a->host))
		return -ENAMETOOLONG;
	n = snprintf(ret_c->options, sizeof(ret_c->options), "metrics=off,listen=%s:%s%s%s%s",
		     mirror_scheme(kind), ret_a->host, kind == ADDR_SHM ? "" : ":0",
		     options ? "," : "", options ? options : "");
	return n < (int)sizeof(ret_c->options) ? 0 : -ENAMETOOLONG;
}

/* In the child: only what is safe after a fork. */
static void mirror_exec(const struct mirror_command *c, pid_t parent)
{
	static char name[] = "kvfs", mirror[] = "mirror", flag[] = "-f", o[] = "-o";
	char *argv[] = { name, mirror, flag, o, (char *)(uintptr_t)c->options,
			 (char *)(uintptr_t)c->volume, NULL };
	int fd = open(c->log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd < 0 || getppid() != parent)
		_exit(127);
	setpgid(0, 0); /* the terminal's ^C is for the parent, which ends us in order */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execv("/proc/self/exe", argv);
	_exit(127);
}

/* The last line of its messages, or how it ended. */
static void mirror_say(const struct mirror_command *c, int status, char *why)
{
	char line[NODE_WHY_BYTES / 2] = "", next[NODE_WHY_BYTES / 2];
	FILE *f = fopen(c->log, "re");

	while (f && fgets(next, sizeof(next), f))
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(next, "\n"), next);
	if (f)
		fclose(f);
	if (line[0])
		snprintf(why, NODE_WHY_BYTES, "a mirror ended: %s",
			 line + (strncmp(line, "kvfs: ", 6) == 0 ? 6 : 0));
	else
		snprintf(why, NODE_WHY_BYTES, "a mirror ended: %s %d",
			 WIFSIGNALED(status) ? "signal" : "exit code",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Whether it listens, and where: it says so on its control socket. */
static bool mirror_listens(const char *volume, struct addr *a)
{
	json_t *request = json_pack("{s:s}", "cmd", "status"), *reply = NULL;
	char ignored[NODE_WHY_BYTES];
	int port = 0, err;

	err = control_call(volume, request, 5, &reply, NULL, ignored, sizeof(ignored));
	json_decref(request);
	if (err)
		return false;
	err = json_unpack(reply, "{s:{s:i}}", "mirror", "listen_port", &port);
	json_decref(reply);
	if (err)
		return false;
	a->port = (uint16_t)port;
	return a->kind == ADDR_SHM || port != 0;
}

static int mirror_wait(struct bench_mirror *m, const struct mirror_command *c,
		       const struct bench_pause *pause, char *why)
{
	uint64_t deadline_ns = clock_mono_ns() + MIRROR_START_NS;
	int status;

	while (!mirror_listens(c->volume, &m->addr)) {
		if (waitpid(m->pid, &status, WNOHANG) == m->pid) {
			m->pid = 0;
			mirror_say(c, status, why);
			return -ECHILD;
		}
		if (clock_mono_ns() > deadline_ns) {
			snprintf(why, NODE_WHY_BYTES, "a mirror did not start in %llu s",
				 MIRROR_START_NS / NSEC_PER_SEC);
			return -ETIMEDOUT;
		}
		if (pause->fn(pause->ctx, MIRROR_LOOK_SECONDS) != 0)
			return -EINTR;
	}
	return 0;
}

int bench_mirror_start(struct bench_site *s, unsigned i, enum addr_kind kind, const char *options,
		       const struct bench_pause *pause, char why[NODE_WHY_BYTES])
{
	struct bench_mirror *m = &s->mirrors[i];
	struct mirror_command c;
	struct addr addr;
	pid_t self = getpid();
	int err = mirror_command_of(s, i, kind, options, &c, &addr);

	if (err) {
		snprintf(why, NODE_WHY_BYTES, "--dir or -o: too long");
		return err;
	}
	m->addr = addr;
	fflush(NULL);
	m->pid = fork();
	if (m->pid < 0) {
		m->pid = 0;
		snprintf(why, NODE_WHY_BYTES, "cannot fork: %s", strerror(errno));
		return -errno;
	}
	if (m->pid == 0)
		mirror_exec(&c, self);
	return mirror_wait(m, &c, pause, why);
}

void bench_mirror_stop(struct bench_mirror *m)
{
	struct pollfd p = { .events = POLLIN };

	if (!m->pid)
		return;
	kill(m->pid, SIGTERM);
	p.fd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	if (p.fd < 0 || poll(&p, 1, MIRROR_STOP_MS) != 1)
		kill(m->pid, SIGKILL);
	if (p.fd >= 0)
		close(p.fd);
	while (waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	m->pid = 0;
}
