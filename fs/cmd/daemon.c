/* SPDX-License-Identifier: Apache-2.0 */
/* See daemon.h. The pipe carries one byte when the daemon serves; its end without
 * one means failure. */
#include "fs/cmd/daemon.h"

#include "common/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int daemon_ready_fd = -1;

static int daemon_wait(pid_t pid, int fd)
{
	char byte;
	ssize_t n;
	int status;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	close(fd);
	if (n == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return 1;
	}
	if (WIFSIGNALED(status))
		diag_error("the daemon was killed by signal %d (%s) before it served",
			   WTERMSIG(status), strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

int daemon_launch(bool foreground, int (*run)(void *arg), void *arg)
{
	int fds[2];
	pid_t pid;

	if (foreground)
		return run(arg);
	/* what a caller left open (a lock, a pipe's end) must not live as long as the daemon */
	(void)close_range(STDERR_FILENO + 1, ~0U, 0);
	if (pipe2(fds, O_CLOEXEC) != 0) {
		diag_error("cannot make a pipe: %s", strerror(errno));
		return 1;
	}
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		diag_error("cannot fork: %s", strerror(errno));
		return 1;
	}
	if (pid > 0) {
		close(fds[1]);
		return daemon_wait(pid, fds[0]);
	}
	close(fds[0]);
	daemon_ready_fd = fds[1];
	setsid();
	exit(run(arg));
}

bool daemon_abandoned(void)
{
	struct pollfd p = { .fd = daemon_ready_fd }; /* POLLERR: nobody reads the pipe any more */

	return daemon_ready_fd >= 0 && poll(&p, 1, 0) == 1;
}

void daemon_ready(void)
{
	int null;

	if (daemon_ready_fd < 0)
		return;
	diag_to_syslog(true);
	if (chdir("/") != 0)
		diag_debug("chdir: %s", strerror(errno));
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		if (null > 2)
			close(null);
	}
	/* last: who hears of it finds the caller's files let go */
	if (write(daemon_ready_fd, "", 1) != 1)
		diag_debug("the command that started the daemon is gone");
	close(daemon_ready_fd);
	daemon_ready_fd = -1;
}
