/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the commands: each is a file and a row here. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli.h"

/* In the help's order. */
#define CLI_COMMAND_LIST(X)                                                    \
    X(cmd_init)                                                                \
    X(cmd_import)                                                              \
    X(cmd_plan)                                                                \
    X(cmd_size)                                                                \
    X(cmd_playground)                                                          \
    X(cmd_compare)                                                             \
    X(cmd_simulate)                                                            \
    X(cmd_train)                                                               \
    X(cmd_profile)                                                             \
    X(cmd_explain)                                                             \
    X(cmd_schedule)                                                            \
    X(cmd_check)                                                               \
    X(cmd_diagnose)                                                            \
    X(cmd_report)                                                              \
    X(cmd_export)                                                              \
    X(cmd_packets)                                                             \
    X(cmd_optical)

#define CLI_DECLARE(command) extern const cli_command command;
CLI_COMMAND_LIST(CLI_DECLARE)
#undef CLI_DECLARE

#endif
