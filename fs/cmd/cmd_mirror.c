/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs mirror. */
#include "fs/cmd/cmd.h"

#include "fs/cmd/daemon.h"
#include "fs/cmd/serve.h"

int cmd_mirror(int argc, char **argv)
{
	static struct serve_args args;
	int code = serve_parse(OPTIONS_MIRROR, argc, argv, &args);

	return code >= 0 ? code : daemon_launch(args.foreground, serve_run, &args);
}
