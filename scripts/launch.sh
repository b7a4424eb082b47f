# Sourced by the launchers scripts/MACHINE/TASK.sh, where TASK names run_TASK.py and configs/TASK:
# reads `RECIPE [--processes N] [--print] [OPTION …]`, then runs a command or shows it.
set -euo pipefail
launcher=$(realpath "$0")
task=$(basename "$launcher" .sh)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "error: $1" >&2
    exit 2
}

# The comment at the head of the launcher.
usage() {
    sed -n '2,/^[^#]/s/^#$//p; 2,/^[^#]/s/^# //p' "$launcher"
}

# read_arguments ARGUMENT …: set recipe, processes, print and options.
read_arguments() {
    case ${1:-} in
        --help | -h) usage; exit ;;
        '' | -*) usage >&2; exit 2 ;;
    esac
    recipe=$1 processes=1 print=false options=()
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h) usage; exit ;;
            --print) print=true ;;
            --processes) processes=${2:-}; shift "$(($# > 1))" ;;
            *) options+=("$1") ;;
        esac
        shift
    done
    [[ $processes =~ ^[1-9][0-9]*$ ]] || fail "--processes: '$processes' is not a number; write e.g. 4"
}

# choose_config MACHINE: set config, output, and command, the Python script with its arguments.
choose_config() {
    config=configs/$task/${recipe}_$1.yaml
    if [[ $recipe == *.yaml ]]; then
        config=$recipe recipe=$(basename "$recipe" .yaml)
    fi
    [ -f "$config" ] || fail "$config: no such file; there are:$(known_recipes)"
    output=${RUNS:-runs}/$recipe
    command=("run_$task.py" --config "$config" --output "$output" --resume "${options[@]}")
}

# known_recipes: the files of this launcher's machine.
known_recipes() {
    local file
    for file in "configs/$task/"*"_$(basename "$(dirname "$launcher")")"*.yaml; do
        printf ' %s' "$(basename "$file" .yaml)"
    done
}

# use_launcher: put Paddle's launcher of several processes before the command.
use_launcher() {
    local nodes=${NODES:-1} launch=(-m paddle.distributed.launch)
    [ $((processes % nodes)) = 0 ] || fail "--processes: NODES=$nodes do not divide $processes"
    if [ "$nodes" -gt 1 ]; then
        [ -n "${MASTER:-}" ] || fail "MASTER is not set; write ADDRESS:PORT of the first machine"
        launch+=(--master "$MASTER" --nnodes "$nodes")
    fi
    command=("${launch[@]}" --nproc_per_node $((processes / nodes)) --log_dir "${output}_log"
             "${command[@]}")
}

# launch WORD …: run a command, or show it so that a shell reads it back.
launch() {
    if $print; then
        printf '%q ' "$@" | sed 's/ $/\n/'
    else
        exec "$@"
    fi
}

# launch_on_cpus: one process, or several by Paddle's launcher.
launch_on_cpus() {
    $print || source scripts/environment.sh
    if [ "$processes" = 1 ]; then
        choose_config cpu
        launch python "${command[@]}"
    else
        choose_config cpu4
        use_launcher
        # Where the variable is set, even empty, the launcher looks for GPUs.
        launch env -u CUDA_VISIBLE_DEVICES python "${command[@]}"
    fi
}

# launch_on_gpus: a process for each GPU.
launch_on_gpus() {
    if [ "$processes" = 1 ]; then
        choose_config gpu
    else
        choose_config "gpu$processes"
        use_launcher
    fi
    launch "${PYTHON:-python}" "${command[@]}"
}

# launch_on_pod IPUS: one process of a Paddle with IPUs, which drives the whole pod.
launch_on_pod() {
    choose_config "pod$1"
    launch "${PYTHON:-python}" "${command[@]}"
}

# launch_by_poprun IPUS: several processes, each with its share of the replicas.
launch_by_poprun() {
    choose_config "pod$1"
    local name replicas
    for name in HOSTS IPU_PARTITION VIPU_SERVER; do
        [ -n "${!name:-}" ] || fail "$name is not set; see --help"
    done
    replicas=$(sed -n 's/^  replicas: //p' "$config")
    # Paddle joins these words by blanks and hands them to a shell.
    mapfile -t command < <(printf '%q\n' "${command[@]}")
    launch "${PYTHON:-python}" -m paddle.distributed.launch --devices "$1" ipu \
        --hosts "$HOSTS" --nproc_per_host "${PROCESSES_PER_HOST:-1}" \
        --ipus_per_replica $(($1 / replicas)) --ipu_partition "$IPU_PARTITION" \
        --vipu_server "$VIPU_SERVER" "${command[@]}"
}
