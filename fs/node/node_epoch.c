/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of replication stands in the superblock: the primary's epochs and its set of mirrors in
 * sync, and whether a mirror may be promoted. See node.h and log/epoch.h. node_begin_epoch: main
 * thread; node_note_sync: the links'.
 */
#include "fs/node/node.h"

#include "common/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

int node_may_promote(const struct volume_super *s, bool force, char why[NODE_WHY_BYTES])
{
	if (s->state == VOLUME_RESYNCING) {
		snprintf(why, NODE_WHY_BYTES,
			 "a resync did not finish: let kvfs mirror finish it, or promote another "
			 "mirror");
		return -EUCLEAN;
	}
	if (s->sync_epoch || force)
		return 0;
	snprintf(why, NODE_WHY_BYTES,
		 "this mirror was not in sync with its primary, and lacks what it acknowledged "
		 "meanwhile: promote one that was, or take the loss with -o promote,force");
	return -ESTALE;
}

int node_begin_epoch(struct node *n, bool promote, char why[NODE_WHY_BYTES])
{
	struct volume_super *s = &n->vol->super, before = *s;
	uint64_t epoch = n->epoch > s->promised_epoch ? n->epoch : s->promised_epoch, lsn;
	uint32_t life = 0;
	char text[EPOCH_TEXT_BYTES];
	int err;

	store_lock(n->store);
	lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	epoch = epoch_next(epoch, promote);
	while (life == 0)
		life = randombytes_random();
	/* Entries beyond the last record go: of a life that wrote nothing, or whose records are
	 * lost. */
	err = epochs_begin(&s->epochs, epoch, lsn + 1, s->node_id, life);
	s->promised_epoch = epoch;
	s->promised_node = s->node_id;
	s->promised_life = life;
	s->is_mirror = false;
	s->sync_epoch = 0;
	s->sync_count = 0;
	memset(s->sync_nodes, 0, sizeof(s->sync_nodes));
	if (!err)
		err = volume_write_super(n->vol);
	if (err) {
		*s = before;
		s->sequence++; /* perhaps on media */
		snprintf(why, NODE_WHY_BYTES, "epoch %s cannot be recorded: %s",
			 epoch_format(epoch, text), strerror(-err));
		return err;
	}
	n->epoch = epoch;
	if (promote)
		diag_info("%s is now the primary's volume, epoch %s%s", n->vol->path,
			  epoch_format(epoch, text),
			  before.sync_epoch ? "" : "; it was not in sync: what it lacks is lost");
	return 0;
}

/* In the set or out of it. False: nothing changes. */
static bool sync_set_change(struct volume_super *s, uint32_t node, bool in)
{
	uint32_t i = 0;

	while (i < s->sync_count && s->sync_nodes[i] != node)
		i++;
	if (in == (i < s->sync_count) || (in && i == VOLUME_SYNC_MAX))
		return false;
	if (in) {
		s->sync_nodes[s->sync_count++] = node;
	} else {
		s->sync_nodes[i] = s->sync_nodes[--s->sync_count];
		s->sync_nodes[s->sync_count] = 0;
	}
	return true;
}

int node_note_sync(void *node, uint32_t mirror_node, bool in)
{
	struct node *n = node;
	int err = 0;

	pthread_mutex_lock(&n->super_lock);
	if (sync_set_change(&n->vol->super, mirror_node, in))
		err = volume_write_super(n->vol);
	if (err) {
		sync_set_change(&n->vol->super, mirror_node, !in);
		diag_error("%s: the superblock cannot be written (%s): that mirror %08x is %s the "
			   "set in sync is not "
			   "recorded",
			   n->vol->path, strerror(-err), mirror_node, in ? "in" : "out of");
	}
	pthread_mutex_unlock(&n->super_lock);
	return err;
}
