/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul train: runs a plan and compares it with the prediction.
 */
#include "commands.h"
#include "train_internal.h"

const char *const train_devices[] = {"timed", "cpu", NULL};
const char *const train_transports[] = {"inproc", "local", "ucx", "tcp", NULL};
static const char *const ranks[] = {"any", "local", NULL};
static const char *const memory[] = {"report", "enforce", NULL};
static const char *const formats[] = {"text", "u16", "u32", NULL};

static const cli_option options[] = {
    {.name = "device",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, device),
     .arg = "DEVICE",
     .preset = "timed",
     .choices = train_devices,
     .help = "What runs the passes. timed: nothing does, they take the time "
             "that the pipeline gives them. cpu: this machine's processors, "
             "which train the plan's model."},
    {.name = "transport",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, transport),
     .arg = "TRANSPORT",
     .preset = "inproc",
     .choices = train_transports,
     .help = "What carries the messages: inproc, with ranks as threads of one "
             "process; local, with ranks as processes of this machine; ucx or "
             "tcp, with ranks that mpirun or srun has started."},
    {.name = "ranks",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, ranks),
     .arg = "WHERE",
     .preset = "any",
     .choices = ranks,
     .help = "Where ranks are: any, where the transport has them; local, "
             "processes of this machine that the program starts, which is "
             "--transport local."},
    CLI_SCHEDULE_ROW(train_settings),
    CLI_SUB_BLOCKS_ROW(train_settings, CLI_SUB_BLOCKS),
    {.name = "schedule-at",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, schedule_at),
     .arg = "STEP=S.csv|METHOD",
     .list_separator = ';',
     .example_argument = "1=gpipe",
     .help = "Go on with another schedule from iteration STEP on, counted from "
             "0: a CSV file, or a method that makes one. All ranks prepare it "
             "while the iteration before runs. Given again, or after ';': more "
             "of them."},
    {.name = "layers-at",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, layers_at),
     .arg = "STEP=N,N,...",
     .list_separator = ';',
     .example_argument = "2=9,7,8,8",
     .help = "From iteration STEP on the chunks have so many layers, as many "
             "together as before. Weights and moments are sent to where their "
             "layers are then, before the iteration; weights do not notice. "
             "Prepared like --schedule-at. Given again, or after ';': more."},
    {.name = "places-at",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, places_at),
     .arg = "STEP=RANK,RANK,...",
     .list_separator = ';',
     .example_argument = "2=0,1,2,3,5,4,6,7",
     .help = "From iteration STEP on these ranks are in the places, device by "
             "device, those of all replicas one after the other, and have what "
             "was trained there, as with --layers-at. On the timed device: "
             "hosts, with --replicas."},
    {.name = "layers",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, layers),
     .arg = "N,N,...",
     .example_argument = "8,8,8,8",
     .help = "With --layers-at, or --adapt and --moving: layers of each chunk "
             "of a pipeline as the run begins. A plan has its own."},
    {.name = "moving",
     .type = CLI_TIME,
     .at = offsetof(train_settings, moving_ns),
     .arg = "TIME",
     .example_argument = "400ms",
     .help = "What a host keeps, weights and moments, takes so long over a "
             "link. With --adapt layers move away from slow devices where that "
             "pays, and with --replicas hosts exchange their places. With "
             "--layers-at or --places-at on the timed device, or with "
             "--replicas, the iteration is longer by it; each host sends one "
             "thing at a time and receives one, and where the link between two "
             "is slow a third one passes it on."},
    {.name = "adapt",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, adapt),
     .help = "Watch what messages and passes take, and where links or devices "
             "become slow, or well again, go on with the schedule that is "
             "fastest then, and with --coupled or --receives late by the path: "
             "decided in the background, prepared by all ranks "
             "like one of --schedule-at. Weights do not notice. --log and "
             "--json say what was noticed, what was decided, and why."},
    CLI_EVENTS_ROW(train_settings, events,
                   "Links and devices become slow, and well again, and rails "
                   "fail, while the run goes on, as FILE says: on emulated "
                   "links, which the cpu device then has, and on the timed "
                   "device. The schedule is made without that, the prediction "
                   "has it."),
    CLI_REPLICAS_ROW(train_settings, replicas,
                     "With --events, which are of hosts then: the pipeline is "
                     "one of so many replicas, of which the timed device plays "
                     "the slowest. A plan that is trained has as many."),
    {.name = "steps",
     .letter = 'n',
     .type = CLI_COUNT,
     .at = offsetof(train_settings, steps),
     .arg = "N",
     .preset = "3",
     .least = 1,
     .most = 100000000,
     .help = "Iterations to run."},
    CLI_RECEIVES_ROW(
        train_settings,
        "When receives are posted, and so when a transfer may start: "
        "ahead of need (early), once the rank gets to the pass in need "
        "(late), or the same but never delayed by weight-gradient passes "
        "(late-fd)."),
    CLI_COUPLED_ROW(train_settings),
    CLI_PATH_ROWS(
        train_settings, staging_ns,
        "With --path or --adapt: what a delegated message takes more "
        "at either end. The timed device takes that time; on the cpu device "
        "copies are real, and this is what is predicted of them."),
    CLI_HOST_MEMORY_ROW(train_settings,
                        "timed: passes take as much longer as --host-copy "
                        "says. Not with --speed, --inject or --events."),
    {.name = "host-copy",
     .type = CLI_TIME,
     .at = offsetof(train_settings, model.host_copy_ns),
     .arg = "TIME",
     .example_argument = "1ms",
     .help = "With --host-memory: what a forward takes longer whose "
             "activations rest in the host, and their backward. Without it "
             "nothing."},
    CLI_FIFO_ROW(train_settings),
    {.name = "inject",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, inject),
     .arg = "LINK=DELAYS",
     .example_argument = "west-east=latency:20ms,gbps:10",
     .help = "Other delays on links: LINK=latency:20ms,gbps:10 or "
             "LINK=transfer:3ms; several with ';' between them. LINK is a "
             "link's name, or two datacenters or devices: west-east, both "
             "ways, or west>east, one way. The schedule is made without them, "
             "the prediction has them."},
    CLI_BUFFERS_ROW(train_settings),
    {.name = "message-bytes",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, message_bytes),
     .arg = "N",
     .least = 1,
     .most = 1u << 30,
     .help = "timed: size of a message. Without this option: a GPU's share of "
             "an activation for a plan, 65536 for a pipeline."},
    {.name = "speed",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, speed),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = 1000,
     .help = "timed: play everything N times as fast: passes, links, and the "
             "prediction. All times that come out are as played."},
    CLI_OUTPUT_ROW(
        train_settings, trace,
        "Write what the last iteration did, as Chrome trace events."),
    CLI_OUTPUT_ROW(train_settings, html,
                   "Write a report that shows the last iteration beside its "
                   "prediction, and how long all of them took."),
    CLI_OUTPUT_ROW(train_settings, svg,
                   "Write a picture of how long iterations took, with what was "
                   "slow and where other schedules began."),
    {.name = "profile-out",
     .type = CLI_OUTPUT,
     .at = offsetof(train_settings, profile_out),
     .arg = "FILE",
     .help = "cpu: write what chunks, messages and the rest of an iteration "
             "took as a profile; a job that names it is planned, and its runs "
             "predicted, with that.",
     .words = CLI_WORDS_FILES},
    {.name = "log",
     .type = CLI_APPENDED,
     .at = offsetof(train_settings, log),
     .arg = "FILE",
     .help = "Append a line of JSON for each iteration. A log that can no "
             "longer be written does not end the run; it is said, and the exit "
             "status is 1.",
     .words = CLI_WORDS_FILES},
    {.name = "realtime",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, realtime),
     .help = "Run ranks under SCHED_FIFO, which takes the right to."},
    {.name = "real-links",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, real_links),
     .help = "timed: messages take the network as it is, without the "
             "pipeline's delays; for ranks on several hosts."},
    {.name = "insecure",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, insecure),
     .help = "ucx: listen beyond this host, where UCX takes messages from "
             "anyone who reaches it; only in networks of the job's own."},
    {.name = "rails",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, rails),
     .arg = "A,B,...",
     .example_argument = "lo,127.0.0.2",
     .help = "tcp: ranks have an address at each of these, and a connection "
             "from each to that of the same number of every other rank. All of "
             "them carry messages; where one fails, the others carry its. Each "
             "is an interface (eth1), a network (10.1.0.0/24) or an address of "
             "this rank."},
    {.name = "emulate-links",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, emulate_links),
     .help = "cpu: messages and data-parallel communication take the plan's "
             "links, as they do on the timed device. Also with --inject."},
    {.name = "memory",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, memory),
     .arg = "HOW",
     .choices = memory,
     .help = "cpu: print what each rank was predicted to hold, and what it "
             "held, by kind (report); and do not let one hold more than the "
             "plan's limit (enforce): what is predicted to is refused before "
             "it starts, what does all the same ends after that iteration, "
             "with a checkpoint if there are any."},
    {.name = "data",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, data),
     .arg = "FILE",
     .help = "cpu: what to train on.",
     .words = CLI_WORDS_FILES},
    {.name = "format",
     .type = CLI_CHOICE,
     .at = offsetof(train_settings, format),
     .arg = "FORMAT",
     .preset = "text",
     .choices = formats,
     .help = "cpu: what the data are: text, or tokens as little-endian "
             "numbers of 16 or 32 bits."},
    {.name = "tokenizer",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, tokenizer),
     .arg = "FILE",
     .help = "cpu: a tokenizer.json of a byte-level BPE for a text. Without "
             "it a token is a byte.",
     .words = CLI_WORDS_FILES},
    {.name = "validation",
     .type = CLI_REAL,
     .at = offsetof(train_settings, validation),
     .arg = "SHARE",
     .example_argument = "0.1",
     .preset = "0",
     .help = "cpu: share of the data, at the end, that is kept for "
             "validation: 0 up to 1."},
    {.name = "validate-every",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, validate_every),
     .arg = "N",
     .preset = "10",
     .least = 1,
     .most = 100000000,
     .help = "cpu: iterations from one validation to the next."},
    {.name = "rate",
     .type = CLI_REAL,
     .at = offsetof(train_settings, rate),
     .arg = "R",
     .preset = "3e-4",
     .help = "cpu: the highest learning rate."},
    {.name = "min-rate",
     .type = CLI_REAL,
     .at = offsetof(train_settings, min_rate),
     .arg = "R",
     .example_argument = "3e-5",
     .help = "cpu: the learning rate at the end of the cosine. Without this "
             "option: a tenth of --rate."},
    {.name = "warmup",
     .type = CLI_COUNT64,
     .at = offsetof(train_settings, warmup),
     .arg = "N",
     .most = 100000000,
     .help = "cpu: iterations in which the rate grows. Without this option: "
             "a hundredth of all."},
    {.name = "weight-decay",
     .type = CLI_REAL,
     .at = offsetof(train_settings, weight_decay),
     .arg = "X",
     .preset = "0.1",
     .help = "cpu: AdamW's weight decay."},
    {.name = "delayed-update",
     .type = CLI_FLAG,
     .at = offsetof(train_settings, delayed_update),
     .help = "cpu: every iteration updates the weights with the gradients of "
             "the one before, as systems do that send them while the next one "
             "computes. It shows what that does to the loss; no iteration is "
             "faster."},
    {.name = "clip",
     .type = CLI_REAL,
     .at = offsetof(train_settings, clip),
     .arg = "NORM",
     .preset = "1",
     .help = "cpu: gradients are scaled down to this global norm; 0: never."},
    {.name = "offload-to",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, offload_to),
     .arg = "DIR",
     .preset = "/var/tmp",
     .help = "cpu: of plans whose job has offload: each rank keeps activations "
             "that leave it in a file in DIR, which has no name there and is "
             "gone with the rank. Better a disk than memory (/dev/shm).",
     .words = CLI_WORDS_FOLDERS},
    {.name = "checkpoint",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, checkpoint),
     .arg = "DIR",
     .help = "cpu: write checkpoints into folders in DIR, one at the end of "
             "the run. One run at a time: another one is refused.",
     .words = CLI_WORDS_FOLDERS},
    {.name = "checkpoint-every",
     .type = CLI_COUNT,
     .at = offsetof(train_settings, checkpoint_every),
     .arg = "N",
     .least = 1,
     .most = 100000000,
     .help = "cpu: and one after every N iterations."},
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
     .help = "cpu: go on from a checkpoint: its folder, or the folder of "
             "several, of which the newest that is whole is taken. --steps "
             "counts from the beginning of the first run.",
     .words = CLI_WORDS_FOLDERS},
    {.name = "weights",
     .type = CLI_TEXT,
     .at = offsetof(train_settings, weights),
     .arg = "FILE",
     .help = "cpu: begin with the weights of a safetensors file.",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul train plan.json --steps 5",
     "Play five iterations of a plan in real time on this machine."},
    {"longhaul train pipeline.yaml -s 1f1b --receives late",
     "See what receives cost that are not posted ahead of need."},
    {"longhaul train pipeline.yaml -s 1f1b --coupled 1 --receives late",
     "And sends that stop the passes behind them until they have arrived."},
    {"longhaul train pipeline.yaml -s 1f1b --coupled 1 --receives late "
     "--path delegated --staging 1ms",
     "The same with messages that are sent from host memory: none does."},
    {"longhaul train pipeline.yaml --inject 'dc0-dc1=latency:40ms,gbps:10'",
     "The same passes over a slower link."},
    {"longhaul train pipeline.yaml -s 1f1b --steps 4 --schedule-at 2=zb-h1",
     "The last two iterations by another schedule."},
    {"longhaul train pipeline.yaml -s 1f1b --steps 4 --layers 8,8,8,8 "
     "--layers-at 2=7,9,8,8 --moving 400ms",
     "The last two with a layer of the first chunk in the second."},
    {"longhaul train pipeline.yaml -s zb-h2 --events events.yaml --steps 20 "
     "--speed 10",
     "Twenty iterations, in some of which links are slow."},
    {"longhaul train pipeline.yaml -s 1f1b --events events.yaml --steps 20 "
     "--speed 10 --adapt",
     "The same, by whichever schedule is fastest with what is slow."},
    {"longhaul train plan.json --device cpu --data book.txt --checkpoint run",
     "Train the plan's model on this machine's processors."},
};

const cli_command cmd_train = {
    .name = "train",
    .operands = "PIPELINE|PLAN",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Run a plan, and see how its prediction holds",
    .description =
        "Every device of the pipeline becomes a rank, the schedule an "
        "execution plan (see explain), messages real bytes. On the timed "
        "device passes take the time that the pipeline gives them and links "
        "the delays, so that a job for hundreds of GPUs plays in real time on "
        "one machine; what is measured then says how far the machine kept up "
        "with the prediction. The cpu device trains: what is measured there "
        "is a test of the prediction.\n\n"
        "The first interrupt (Ctrl-C), SIGTERM or SIGHUP ends the run after "
        "the iteration, with a checkpoint if there are any; the second ends it "
        "at once, a third as signals do. What was done until then is printed "
        "all the same, with exit status 1. It is enough to signal the process "
        "that was started.",
    .output_help = "Write what would be printed to FILE.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(train_settings),
    .may_span_hosts = true,
    .run = train_run,
};
