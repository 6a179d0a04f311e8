# SPDX-License-Identifier: Apache-2.0
# Flags every folder compiles with; included by each Makefile.am.
AM_CPPFLAGS = -I$(top_srcdir) -I$(top_builddir) -D_GNU_SOURCE -DFUSE_USE_VERSION=314
AM_CFLAGS = -std=gnu11 -pthread $(WARN_CFLAGS) $(SAN_CFLAGS) \
	$(FUSE_CFLAGS) $(PMEMLOG_CFLAGS) $(PMEM_CFLAGS) $(URING_CFLAGS) $(ISAL_CFLAGS) \
	$(XXHASH_CFLAGS) $(SODIUM_CFLAGS) $(JANSSON_CFLAGS) $(BLKID_CFLAGS) $(MHD_CFLAGS) \
	$(IBVERBS_CFLAGS) $(RDMACM_CFLAGS)
AM_LDFLAGS = -pthread $(SAN_CFLAGS)
