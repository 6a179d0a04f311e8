/* SPDX-License-Identifier: Apache-2.0 */
/* The MTU of a session's way, for status, and a warning where both ends differ. kv-mirror. */
#include "replication/mirror/mirror_internal.h"

#include <string.h>

void mirror_mtu_note(struct mirror *m)
{
	struct transport_mtu mtu = { 0 };
	char text[TRANSPORT_MTU_NOTE_BYTES];
	bool fresh;

	if (m->tops->mtu)
		m->tops->mtu(m->ep, &mtu);
	transport_mtu_note(&mtu, text, sizeof(text));
	pthread_mutex_lock(&m->lock);
	m->mtu_bytes = mtu.path;
	fresh = transport_mtu_known(&mtu) && strcmp(text, m->mtu_note) != 0;
	if (fresh)
		memcpy(m->mtu_note, text, sizeof(text));
	pthread_mutex_unlock(&m->lock);
	if (fresh && text[0] && m->ops->warn)
		m->ops->warn(m->ctx, text);
}
