/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set-up of the tcp transport, the part that both ends share: socket options, addresses, the status
 * that ends it.
 *
 *   primary → mirror: offer      mirror → primary: answer (a port, a random token)
 *   primary dials all lanes, each beginning with the token      mirror → primary: status
 *
 * A lane that is made anew is set up in the same way but without an offer.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_BUFFER_BYTES (4 << 20)
#define SILENCE_MS 10000 /* unacknowledged data end a lane after this */

static void set_int(int fd, int level, int name, int value)
{
	/* Each of these makes a lane better, none is needed for it to be right. */
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* Before connect or listen: the buffers decide the window scale. Without CAP_NET_ADMIN the kernel's
 * own tuning stays: a plain SO_SNDBUF could only make them smaller. */
void tcp_set_options(int fd)
{
	set_int(fd, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES);
	set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES);
	set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS);
	set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 3);
	set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
	set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

int tcp_address_check(int r, union tcp_sock_addr *a, socklen_t *ret_len)
{
	if (r < 0)
		return -errno;
	if (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6)
		return -ENOTSUP;
	*ret_len = a->sa.sa_family == AF_INET ? sizeof(a->in) : sizeof(a->in6);
	return 0;
}

void tcp_set_port(union tcp_sock_addr *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET)
		a->in.sin_port = htons(port);
	else
		a->in6.sin6_port = htons(port);
}

uint16_t tcp_get_port(const union tcp_sock_addr *a)
{
	return ntohs(a->sa.sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port);
}

void tcp_close_all(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int tcp_send_status(int fd, int err, uint64_t deadline_ns)
{
	struct tcp_status s;

	put_be32(s.magic, TCP_MAGIC_STATUS);
	put_be32(s.err, (uint32_t)-err);
	return setup_send(fd, &s, sizeof(s), deadline_ns);
}

int tcp_recv_status(int fd, uint64_t deadline_ns)
{
	struct tcp_status s;
	int r = setup_recv(fd, &s, sizeof(s), deadline_ns);

	if (r < 0)
		return r;
	if (get_be32(s.magic) != TCP_MAGIC_STATUS)
		return -EPROTO;
	return get_be32(s.err) == 0 ? 0 : -ECONNABORTED;
}
