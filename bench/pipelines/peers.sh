#!/bin/bash
# Makes the environment of one peer: peers.sh NAME FOLDER. Pins are in NAME.txt beside this file; PyFlink's Kafka connector
# is a jar that no pip package has, and comes by Maven (flink-pom.xml).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=$1
folder=$2
mkdir -p "$folder"
python3 -m venv "$folder/$name"
"$folder/$name/bin/python" -m pip --disable-pip-version-check --quiet --retries 10 --timeout 60 install --requirement "$here/$name.txt"
if [ "$name" = flink ]; then
    command -v mvn > /dev/null || { echo "Maven is needed for PyFlink's Kafka connector" >&2; exit 1; }
    mvn --batch-mode --quiet --file "$here/flink-pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$folder/flink/jars"
fi
touch "$folder/$name/done"
