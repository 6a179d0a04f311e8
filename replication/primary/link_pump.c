/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pump: what the leader could not send, read from the log, as far as ring, window and credits
 * allow (link.h). The thread that has the endpoint.
 */
#include "replication/primary/link.h"

#include <errno.h>

/* Reads records from next_lsn on into read_buf, unless it holds them. -EAGAIN: the log has no
 * more. */
static int link_read_log(struct link *l, uint64_t next_lsn)
{
	uint64_t last_lsn;
	int err;

	if (l->read_pos < l->read_len && l->read_lsn == next_lsn)
		return 0;
	l->read_len = l->read_pos = 0;
	err = oplog_read(l->primary->log, next_lsn, l->read_buf, LINK_READ_BYTES, &l->read_len,
			 &last_lsn);
	if (err)
		return err;
	l->read_lsn = next_lsn;
	return 0;
}

/* Posts one batch from read_buf, if it still begins with next_lsn. Returns how many went; -EBADMSG:
 * the log is damaged. */
static int link_pump_batch_locked(struct link *l)
{
	struct link_sender *s = &l->send;
	unsigned count = 0, taken, max = link_batch_max(l);
	size_t pos = l->read_pos, bytes;

	if (l->read_lsn != s->next_lsn || s->suspended)
		return 0;
	while (count < max && pos < l->read_len) {
		if (record_peek_bytes(l->read_buf + pos, l->read_len - pos, &bytes) < 0 ||
		    bytes > l->read_len - pos)
			return -EBADMSG;
		s->iov[count] = (struct iovec){ l->read_buf + pos, bytes };
		if (!link_batch_add_locked(l, count, count, 1, (uint32_t)bytes))
			break;
		count++;
		pos += bytes;
	}
	taken = link_batch_post_locked(l, count);
	for (unsigned i = 0; i < taken; i++)
		l->read_pos += s->bytes[i];
	l->read_lsn += taken;
	link_count_add(&l->from_log_records, taken);
	return (int)taken;
}

/* Settles under the lock whether there is anything to send from the log. */
static bool link_pump_behind(struct link *l, uint64_t *ret_next_lsn)
{
	bool behind;

	l->pump_wanted = false;
	pthread_mutex_lock(&l->send_lock);
	/* suspended: it stays behind, but just now nothing is to be done about it */
	behind = !l->send.suspended && l->send.next_lsn <= oplog_last_lsn(l->primary->log);
	if (!l->send.suspended)
		atomic_store_explicit(&l->send.behind, behind, memory_order_relaxed);
	*ret_next_lsn = l->send.next_lsn;
	link_unlock(l);
	return behind;
}

int link_pump(struct link *l)
{
	uint64_t next_lsn;
	int n = 1;

	while (n > 0 || l->pump_wanted) {
		int err;

		if (!link_pump_behind(l, &next_lsn)) {
			n = 0;
			continue;
		}
		err = link_read_log(l, next_lsn);
		if (err)
			return err == -EAGAIN ? 0 : err;
		pthread_mutex_lock(&l->send_lock);
		n = link_pump_batch_locked(l);
		link_unlock(l);
		if (n < 0)
			return n;
	}
	return 0;
}

bool link_pump_wanted(const struct link *l)
{
	return l->pump_wanted || atomic_load_explicit(&l->send.behind, memory_order_relaxed);
}
