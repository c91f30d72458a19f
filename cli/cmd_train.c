/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul train: runs a plan and compares it with the prediction.
 */
#include "commands.h"
#include "train_internal.h"

const char *const train_devices[] = {"timed", "cpu", NULL};
const char *const train_transports[] = {"inproc", "local", "ucx", "tcp", NULL};
static const char *const ranks[] = {"any", "local", NULL};
static const char *const memory[] = {"report", "enforce", NULL};
static const char *const rate_decays[] = {"cosine", "linear", "constant", NULL};
static const char *const formats[] = {"text", "u16", "u32", "megatron", NULL};

static const cli_option options[] = {
    {.name = "device",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, device),
     .arg = "DEVICE",
     .preset = "timed",
     .choices = train_devices,
     .help = "Device that runs the passes. timed: emulated with the pipeline's "
             "durations. cpu: this machine's processors, which train the "
             "plan's model."},
    {.name = "transport",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, transport),
     .arg = "TRANSPORT",
     .preset = "inproc",
     .choices = train_transports,
     .help = "Message transport: inproc (ranks are threads of one process), "
             "local (ranks are processes of this machine), ucx or tcp (ranks "
             "are started by mpirun, srun, torchrun or --hosts)."},
    {.name = "ranks",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, ranks),
     .arg = "WHERE",
     .preset = "any",
     .choices = ranks,
     .help = "Where ranks run: any (as --transport defines), or local (one "
             "process per rank on this machine; same as --transport local)."},
    CLI_SCHEDULE_ROW(train_settings),
    CLI_SUB_BLOCKS_ROW(train_settings, CLI_SUB_BLOCKS),
    {.name = "schedule-at",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, schedule_at),
     .arg = "STEP=S.csv|METHOD",
     .list_separator = ';',
     .example_argument = "1=gpipe",
     .help =
         "Switch to another schedule (a CSV file or a method) at iteration "
         "STEP, counted from 0. All ranks prepare the schedule during the "
         "iteration before. Repeat the option, or use ';', for more switches."},
    {.name = "layers-at",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, layers_at),
     .arg = "STEP=N,N,...",
     .list_separator = ';',
     .example_argument = "2=9,7,8,8",
     .help =
         "Change the layers per chunk at iteration STEP; their sum must stay "
         "the same. Weights and moments migrate before the iteration; training "
         "is bit-identical. All ranks prepare the change during the iteration "
         "before. Repeat the option, or use ';', for more changes."},
    {.name = "places-at",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, places_at),
     .arg = "STEP=RANK,RANK,...",
     .list_separator = ';',
     .example_argument = "2=0,1,2,3,5,4,6,7",
     .help = "At iteration STEP, change which rank runs each device: the list "
             "has the ranks for the devices of the first replica, then of the "
             "next. Weights and moments migrate as with --layers-at. On the "
             "timed device the list has hosts and requires --replicas."},
    {.name = "layers",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, layers),
     .arg = "N,N,...",
     .example_argument = "8,8,8,8",
     .help =
         "With --layers-at, or with --adapt and --moving: initial layer count "
         "of each chunk, for a pipeline (a plan contains its layer counts)."},
    {.name = "moving",
     .type = CLI_TIME,
     .at = offsetof(train_settings, moving_ns),
     .arg = "TIME",
     .example_argument = "400ms",
     .help = "Time to send one host's weights and moments over a link; a "
             "layer takes its share. With --adapt, layers migrate from slow "
             "devices if that saves time, and with --replicas hosts exchange "
             "their ranks. On the timed device, and with --replicas on any "
             "device, migrations by --layers-at or --places-at take this time "
             "too. Each host sends one message at a time and receives one; "
             "data may bypass a slow link through a third host."},
    {.name = "adapt",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, adapt),
     .help = "Monitor the times of messages and passes. On the cpu device or "
             "over real links, times measured in iteration 1 first replace the "
             "planned times, for the schedule and the prediction. When links "
             "or devices become slow or recover, switch to the fastest "
             "schedule and, with --coupled or --receives late, message path "
             "(direct, or through host memory). Decisions are made in the "
             "background. Training results are unaffected. --log and --json "
             "contain detections, decisions and reasons."},
    CLI_EVENTS_ROW(train_settings, events,
                   "Emulate slow links, slow devices and rail failures during "
                   "the run, as given by FILE: on the timed device, and on the "
                   "cpu device with emulated links. The schedule is made "
                   "without these events; the predicted time includes them."),
    CLI_REPLICAS_ROW(
        train_settings, replicas,
        "Number of data-parallel replicas of a pipeline file's pipeline, with "
        "--events or with --adapt and --moving (a plan contains its number of "
        "replicas). The timed device runs one pipeline, with the times of the "
        "slowest replica."),
    {.name = "steps",
     .letter = 'n',
     .type = CLI_COUNT,
     .at = offsetof(train_settings, steps),
     .arg = "N",
     .preset = "3",
     .least = 1,
     .most = 100000000,
     .help = "Number of iterations."},
    {.name = "progress",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, progress_every),
     .arg = "N",
     .preset = "10",
     .least = 0,
     .most = 100000000,
     .help =
         "Print a progress line every N iterations, on standard output or, "
         "with --json, on standard error. Without this option the lines go to "
         "standard error unless it is a terminal; 0 or --quiet prints none."},
    CLI_RECEIVES_ROW(
        train_settings,
        "When to post receives, and so when a transfer may start: ahead of "
        "need (early), when the rank reaches the pass (late), or late but "
        "never delayed by weight-gradient passes (late-fd); or as in the "
        "plan (pipeline)."),
    CLI_COUPLED_ROW(train_settings),
    CLI_PATH_ROWS(
        train_settings, staging_ns,
        "With --path or --adapt: time to copy a message to or from host memory "
        "at each end. Emulated on the timed device; on the cpu device copies "
        "are real, and TIME is their predicted time."),
    CLI_HOST_MEMORY_ROW(
        train_settings,
        "On the timed device passes take longer by --host-copy; on the cpu "
        "device copies are real, by default in /dev/shm (see --offload-to). "
        "Not with --speed or --inject."),
    {.name = "host-copy",
     .type = CLI_TIME,
     .at = offsetof(train_settings, model.host_copy_ns),
     .arg = "TIME",
     .example_argument = "1ms",
     .help =
         "With --host-memory: time to copy one forward's activations to or "
         "from host memory. Lengthens the forward and the backward of these "
         "activations on the timed device (default: 0) or, on the cpu device, "
         "in the prediction (required)."},
    CLI_FIFO_ROW(train_settings),
    {.name = "inject",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, inject),
     .arg = "LINK=DELAYS",
     .example_argument = "west-east=latency:20ms,gbps:10",
     .help = "Override link delays: LINK=latency:20ms,gbps:10 or "
             "LINK=transfer:3ms, separated by ';'. LINK is a link's name, or "
             "two datacenters or devices: west-east for both directions, "
             "west>east for one. The schedule is made without these delays; "
             "the predicted time includes them."},
    CLI_BUFFERS_ROW(train_settings),
    {.name = "message-bytes",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, message_bytes),
     .arg = "N",
     .least = 1,
     .most = 1u << 30,
     .help = "timed: message size in bytes (default: a GPU's share of an "
             "activation for a plan, 65536 for a pipeline)."},
    {.name = "speed",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, speed),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = 1000,
     .help = "timed: divide the times of passes and links by N, in the run and "
             "in its prediction. Reported times are the divided ones."},
    CLI_OUTPUT_ROW(train_settings, trace,
                   "Write the last iteration as Chrome trace events."),
    CLI_OUTPUT_ROW(train_settings, html,
                   "Write an HTML report: the last iteration with its "
                   "prediction, and all iteration times."),
    CLI_OUTPUT_ROW(train_settings, svg,
                   "Write an SVG picture of iteration times, slowdowns and "
                   "schedule switches."),
    {.name = "profile-out",
     .type = CLI_OUTPUT,
     .at = offsetof(train_settings, profile_out),
     .arg = "FILE",
     .help = "cpu: write the measured times of chunks, messages and the rest "
             "of an iteration as a profile, for planning and prediction.",
     .words = CLI_WORDS_FILES},
    {.name = "log",
     .type = CLI_APPENDED,
     .at = offsetof(train_settings, log),
     .arg = "FILE",
     .help = "Append a JSON line per iteration. A failed write is reported but "
             "does not end the run; the exit status is 1.",
     .words = CLI_WORDS_FILES},
    {.name = "realtime",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, realtime),
     .help = "Run ranks under SCHED_FIFO; requires the privilege."},
    {.name = "real-links",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, real_links),
     .help = "timed: use the real network without the pipeline's delays; for "
             "ranks on several hosts."},
    {.name = "insecure",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, insecure),
     .help = "ucx: accept connections from other hosts. UCX does not "
             "authenticate peers; use it only in the job's own network."},
    {.name = "silence",
     .type = CLI_TIME,
     .at = offsetof(train_settings, silence_ns),
     .arg = "TIME",
     .example_argument = "30s",
     .help =
         "local, tcp, ucx: end the run if a rank sends nothing for this "
         "time, for example because its process is stopped (default: 3.5s; "
         "with --transport local or with --rails 10s). A rank whose pass lasts "
         "longer than this time (default 10s) and ten iterations ends it, too. "
         "The minimum is 100ms, "
         "with --rails 1.6s."},
    {.name = "max-restarts",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, max_restarts),
     .arg = "N",
     .most = 1000000,
     .help =
         "cpu with --checkpoint: if a rank is lost (killed, crashed or "
         "silent; inproc: ended by an event), restart all ranks after the last "
         "iteration, from memory or a checkpoint, at most N times "
         "(default: end the run). Results are bit-identical to those of an "
         "undisturbed run unless microbatches of a lost host are divided."},
    {.name = "rails",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, rails),
     .arg = "A,B,...",
     .example_argument = "lo,127.0.0.2",
     .help = "tcp: connect ranks over several networks (rails) in parallel: "
             "each rank has an address on each rail, connected to the same "
             "rail of every other rank. All rails carry messages; if one "
             "fails, the others take over. A rail is an interface (eth1), a "
             "network (10.1.0.0/24) or an address of this rank."},
    {.name = "hosts",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, hosts),
     .arg = "NAME:RANKS,...",
     .example_argument = "west-0:4,east-0:4",
     .help = "tcp, ucx: start as many ranks on this host as the list gives for "
             "it. Run the same command on each host, with the same "
             "LONGHAUL_SECRET. This host is the one with the name that uname "
             "-n prints, or the one at position NODE_RANK, from 0. Rank 0 runs "
             "on the first host; its address is MASTER_ADDR (default: the "
             "first name) and its port MASTER_PORT (default 29500)."},
    {.name = "emulate-links",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, emulate_links),
     .help = "cpu: delay messages and data-parallel communication as the "
             "plan's links would. --inject and --events also enable this."},
    {.name = "threads",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, threads),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = 1024,
     .help = "cpu: threads of each rank, which share its large matrix "
             "products. Results are the same for any number."},
    {.name = "memory",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, memory),
     .arg = "HOW",
     .choices = memory,
     .help = "cpu: print the predicted and measured memory of each rank by "
             "kind (report); or also enforce the plan's limit (enforce): a "
             "rank predicted to exceed it is rejected at start, one that "
             "exceeds it ends the run after that iteration, with a checkpoint "
             "if enabled."},
    {.name = "data",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, data),
     .arg = "FILE|WEIGHT=FILE",
     .list_separator = ';',
     .example_argument = "book.txt",
     .help = "cpu: training data. Repeat it, or use ';', for more files: their "
             "tokens follow one another or, with weights, their sequences are "
             "mixed in the shares WEIGHT.",
     .words = CLI_WORDS_FILES},
    {.name = "format",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, format),
     .arg = "FORMAT",
     .preset = "text",
     .choices = formats,
     .help = "cpu: format of the data: text, tokens as little-endian numbers "
             "of 16 or 32 bits, or Megatron-LM's PREFIX.bin with PREFIX.idx."},
    {.name = "tokenizer",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, tokenizer),
     .arg = "FILE",
     .help = "cpu: tokenizer.json of a byte-level BPE for text data (default: "
             "one token per byte).",
     .words = CLI_WORDS_FILES},
    {.name = "validation",
     .type = CLI_REAL,
     .at = offsetof(train_settings, validation),
     .arg = "SHARE",
     .example_argument = "0.1",
     .preset = "0",
     .help = "cpu: share of the data, at the end, kept for validation: from 0 "
             "to less than 1."},
    {.name = "validation-data",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, validation_data),
     .arg = "FILE",
     .list_separator = ';',
     .help = "cpu: validation data, in the format of --data, in place of "
             "--validation. Repeat it, or use ';', for more.",
     .words = CLI_WORDS_FILES},
    {.name = "validate-every",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, validate_every),
     .arg = "N",
     .preset = "10",
     .least = 1,
     .most = 100000000,
     .help = "cpu: iterations between validations."},
    {.name = "rate",
     .type = CLI_REAL,
     .at = offsetof(train_settings, rate),
     .arg = "R",
     .preset = "3e-4",
     .help = "cpu: maximum learning rate."},
    {.name = "min-rate",
     .type = CLI_REAL,
     .at = offsetof(train_settings, min_rate),
     .arg = "R",
     .example_argument = "3e-5",
     .help = "cpu: learning rate at the end of its decay (default: a tenth of "
             "--rate)."},
    {.name = "rate-decay",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, rate_decay),
     .arg = "SHAPE",
     .preset = "cosine",
     .choices = rate_decays,
     .help = "cpu: decay of the learning rate after the warm-up."},
    {.name = "decay-steps",
     .type = CLI_COUNT64,
     .at = offsetof(train_settings, decay_steps),
     .arg = "N",
     .least = 1,
     .most = 100000000,
     .help = "cpu: last iterations in which the learning rate decays; it is "
             "constant between warm-up and decay (WSD). Default: all after the "
             "warm-up."},
    {.name = "warmup",
     .type = CLI_COUNT64,
     .at = offsetof(train_settings, warmup),
     .arg = "N",
     .most = 100000000,
     .help = "cpu: warm-up iterations of the learning rate (default: a "
             "hundredth of all)."},
    {.name = "weight-decay",
     .type = CLI_REAL,
     .at = offsetof(train_settings, weight_decay),
     .arg = "X",
     .preset = "0.1",
     .help = "cpu: AdamW's weight decay."},
    {.name = "beta1",
     .type = CLI_REAL,
     .at = offsetof(train_settings, beta1),
     .arg = "X",
     .preset = "0.9",
     .help = "cpu: AdamW's decay rate of the mean gradient: from 0 to less "
             "than 1."},
    {.name = "beta2",
     .type = CLI_REAL,
     .at = offsetof(train_settings, beta2),
     .arg = "X",
     .preset = "0.95",
     .help = "cpu: AdamW's decay rate of the mean squared gradient: from 0 to "
             "less than 1."},
    {.name = "epsilon",
     .type = CLI_REAL,
     .at = offsetof(train_settings, epsilon),
     .arg = "X",
     .preset = "1e-8",
     .help = "cpu: AdamW's term for numerical stability: above 0."},
    {.name = "delayed-update",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, delayed_update),
     .help = "cpu: update the weights in every iteration with the gradients of "
             "the previous one, as systems do that overlap gradient "
             "communication with the next iteration. Shows the effect on the "
             "loss; iterations are not faster."},
    {.name = "clip",
     .type = CLI_REAL,
     .at = offsetof(train_settings, clip),
     .arg = "NORM",
     .preset = "1",
     .help = "cpu: clip gradients to this global norm; 0: never."},
    {.name = "offload-to",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, offload_to),
     .arg = "DIR",
     .preset = "/var/tmp",
     .help = "cpu: with offload in the plan's job, or --host-memory: folder of "
             "the unnamed files for offloaded activations, one per rank, "
             "deleted when the rank ends. For offload use a disk, not memory "
             "(/dev/shm).",
     .words = CLI_WORDS_FOLDERS},
    {.name = "checkpoint",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, checkpoint),
     .arg = "DIR",
     .help = "cpu: write checkpoints to folders in DIR, one at the end of the "
             "run. DIR belongs to one run: see --resume and --fresh.",
     .words = CLI_WORDS_FOLDERS},
    {.name = "checkpoint-every",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, checkpoint_every),
     .arg = "N",
     .least = 1,
     .most = 100000000,
     .help = "cpu: write a checkpoint after every N iterations."},
    {.name = "keep",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, keep),
     .arg = "K",
     .preset = "2",
     .least = 1,
     .most = 100000000,
     .help = "cpu: keep the last K checkpoints."},
    {.name = "resume",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, resume),
     .arg = "DIR",
     .help = "cpu: resume from a checkpoint: its folder, or a folder of "
             "several, of which the newest complete one is used. --steps "
             "counts from the start of the first run. Data and global batch "
             "must be the same; parallel degrees may differ. Options that are "
             "not given have the checkpoint's values.",
     .words = CLI_WORDS_FOLDERS},
    {.name = "override",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, overrides),
     .arg = "NAME,...",
     .example_argument = "rate,clip",
     .help = "With --resume: options that may differ from the checkpoint's "
             "values (any other difference is an error): steps (stretches the "
             "learning-rate schedule to --steps), rate, min-rate, warmup, "
             "weight-decay, clip, beta1, beta2, epsilon, rate-decay, "
             "decay-steps; of the job dropout, balance_loss, balance_bias, "
             "expert_capacity, bf16."},
    {.name = "fresh",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, fresh),
     .help = "With --checkpoint: remove the checkpoints of another run from "
             "DIR before the first one is written. Without --fresh or --resume "
             "a folder with another run's checkpoints is rejected."},
    {.name = "weights",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, weights),
     .arg = "FILE",
     .help = "cpu: start with the weights in FILE: a safetensors file, an "
             "index of several files (.index.json), or a folder that contains "
             "one of the two.",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul train plan.json --steps 5",
     "Emulate five iterations of a plan in real time on this machine."},
    {"longhaul train pipeline.yaml -s 1f1b --receives late",
     "Measure the cost of receives that are not posted ahead of need."},
    {"longhaul train pipeline.yaml -s 1f1b --coupled 1 --receives late",
     "Also block the passes behind a send until it has arrived."},
    {"longhaul train pipeline.yaml -s 1f1b --coupled 1 --receives late "
     "--path delegated --staging 1ms",
     "Avoid the blocking by sending messages from host memory."},
    {"longhaul train pipeline.yaml --inject 'dc0-dc1=latency:40ms,gbps:10'",
     "Run the same passes over a slower link."},
    {"longhaul train pipeline.yaml -s 1f1b --steps 4 --schedule-at 2=zb-h1",
     "Run the last two iterations with another schedule."},
    {"longhaul train pipeline.yaml -s 1f1b --steps 4 --layers 8,8,8,8 "
     "--layers-at 2=7,9,8,8 --moving 400ms",
     "Move a layer of the first chunk to the second for the last two "
     "iterations."},
    {"longhaul train pipeline.yaml -s zb-h2 --events events.yaml --steps 20 "
     "--speed 10",
     "Emulate twenty iterations, some of them with slow links."},
    {"longhaul train pipeline.yaml -s 1f1b --events events.yaml --steps 20 "
     "--speed 10 --adapt",
     "Also switch to the fastest schedule for the current slowdowns."},
    {"longhaul train plan.json --device cpu --data book.txt --checkpoint run",
     "Train the plan's model on this machine's processors."},
};

const cli_command cmd_train = {
    .name = "train",
    .operands = "PIPELINE|PLAN",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Run a plan, and compare it with its prediction",
    .description =
        "Every device of the pipeline becomes a rank, the schedule becomes a "
        "rank program (see explain), and messages carry real bytes. On the "
        "timed device passes take the durations of the pipeline and links "
        "their delays, so that a job for hundreds of GPUs is emulated in real "
        "time on one machine; the measurement shows whether this machine kept "
        "up with the prediction. The cpu device trains; its measurement tests "
        "the prediction.\n"
        "\n"
        "The first interrupt (Ctrl-C), SIGTERM or SIGHUP ends the run after "
        "the current iteration, with a checkpoint if enabled; the second ends "
        "it at once, the third has the signal's default effect. Results so far "
        "are printed, with exit status 1. Signal only the process that you "
        "started.",
    .output_help = "Write the results to FILE instead of printing them.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(train_settings),
    .may_span_hosts = true,
    .failed = train_report_failure,
    .run = train_run,
};
