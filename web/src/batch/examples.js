/**
 * Batches to begin with.
 * @import {Settings} from './answer.js'
 */

import { button, element } from '../dom.js';
import { FIRST_SETTINGS } from './answer.js';
import { schemaOf } from './schema.js';

/** @typedef {{title: string, words: string, settings: Settings, text: string}} Example */

const COUNTRIES =
  'France Japan Kenya Peru Norway Egypt Canada India Spain Chile Ghana Italy Cuba Nepal Austria Iran Greece Poland Sweden Iraq';

/** Small models do as they are shown. */
const REVIEW_TEMPLATE = `Text: I loved it.
Answer: positive

Text: It was awful.
Answer: negative

Text: {review}
Answer:`;
const MAIL_TEMPLATE = `Take customer, item, count and city from the mail.

Mail: Two red cups to Rome, please. Leo Rossi
JSON: {{"customer": "Leo Rossi", "item": "red cup", "count": 2, "city": "Rome"}}

Mail: {mail}
JSON:`;
const REVIEWS = `review
The soup was cold and the waiter rude.
Best bread in town, I come back every week.
We waited an hour for two coffees.
Lovely garden, friendly people, fair prices.
My steak was burnt and nobody cared.
The cake alone is worth the trip.
Dirty tables and loud music.
They remembered my name. What a place!
Too salty, too small, too expensive.
A quiet corner with excellent tea.
The fish smelled bad.
Our children loved the pancakes.
I found a hair in my salad.
Fresh pasta, made before your eyes.
The card reader was broken and they blamed me.
Perfect service from start to end.
Never again.
The view is great and the food is even better.
Half of the menu was sold out at noon.
A wonderful evening, thank you!`;

const MAILS = `mail
Hi, this is Ana Ruiz. Please send 3 blue chairs to Madrid.
We need twelve lamps in Oslo by Friday. Regards, Per Hansen
Could I get one desk delivered to Lyon? Thanks, Claire Petit
Tom Baker here: two sofas for our office in Leeds, please.
Please ship 5 green stools to Kyoto. Yours, Emi Sato
Order: 40 folding tables, Nairobi. Contact: Wanjiru Kamau`;

/** @type {Example[]} */
const EXAMPLES = [
  {
    title: 'Ask the same of 20 rows',
    words: 'A list of countries, one question.',
    settings: { ...FIRST_SETTINGS, template: 'What is the capital of {country}?', maxTokens: 24 },
    text: COUNTRIES.replaceAll(' ', '\n'),
  },
  {
    title: 'Sort 20 reviews',
    words: 'One of your labels for each row, with probabilities.',
    settings: {
      ...FIRST_SETTINGS,
      template: REVIEW_TEMPLATE,
      mode: 'choices',
      labels: 'positive\nnegative',
    },
    text: REVIEWS,
  },
  {
    title: 'Take fields from 6 mails',
    words: 'JSON in your shape, a column for each field.',
    settings: {
      ...FIRST_SETTINGS,
      template: MAIL_TEMPLATE,
      mode: 'json',
      schema: schemaOf([
        { name: 'customer', type: 'text', choices: [] },
        { name: 'item', type: 'text', choices: [] },
        { name: 'count', type: 'integer', choices: [] },
        { name: 'city', type: 'text', choices: [] },
      ]),
      maxTokens: 96,
    },
    text: MAILS,
  },
];

/**
 * The examples to choose from.
 * @param {(example: Example) => void} onTake
 */
export function exampleCards(onTake) {
  const cards = EXAMPLES.map((example) => {
    const card = button('', () => onTake(example), { class: 'example' });
    card.append(element('strong', {}, example.title), element('small', {}, example.words));
    return element('li', {}, card);
  });
  return element(
    'div',
    { class: 'examples' },
    element('h2', {}, 'Many rows, one prompt, all at once'),
    element('p', {}, 'Paste rows, drop a CSV, JSON or text file, or begin with one of these:'),
    element('ul', { class: 'plain' }, ...cards),
  );
}
