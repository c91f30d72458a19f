/* SPDX-License-Identifier: Apache-2.0 */
/* `--inject west-east=latency:20ms,gbps:10`: links with other delays. */
#ifndef CLI_INJECT_H
#define CLI_INJECT_H

#include "inputs.h"

/* A copy of the pipeline in which the links that `text` names have the delays
 * given there: LINK=KEY:VALUE,...;LINK=... with the keys latency and transfer
 * (times with a unit) and gbps (of messages of `message_bytes`). A link that
 * the pipeline does not have is added if its name is FROM-TO, two of the
 * pipeline's devices. */
lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out);

/* A copy of the pipeline in which everything is `speed` times as fast. */
lh_status cli_faster(cli *c, const lh_pipeline *pipeline, uint32_t speed,
                     lh_pipeline **out);

#endif
